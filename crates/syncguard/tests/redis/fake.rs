//! What stands in for servers that cannot be told to misbehave.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Listens on a free port and runs `serve` on each connection, until the test ends.
pub(crate) async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// Takes connections, keeps them, and says nothing.
pub(crate) async fn silent() -> u16 {
    listen(|stream| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await
}

/// A Sentinel that names the primary whose port the other half tells.
pub(crate) async fn sentinel(primary: u16) -> (u16, watch::Sender<u16>) {
    let (told, primary) = watch::channel(primary);
    let port = listen(move |mut stream| {
        let port = primary.borrow().to_string();
        async move {
            let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
            // The asker may have gone.
            let _ = stream.write_all(answer.as_bytes()).await;
            // It ends the connection, not we: our end would cut off what is on its way.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    })
    .await;
    (port, told)
}

/// A request, word by word; `None` when the connection has ended.
pub(crate) async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let count = read_number(stream, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = read_number(stream, '$').await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

async fn read_number(stream: &mut BufReader<TcpStream>, kind: char) -> Option<usize> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let digits = line.strip_prefix(kind).unwrap_or_else(|| panic!("{line}"));
    Some(digits.trim_end().parse().unwrap())
}

/// Answers what stands at the start of a connection, and leaves the first script to the caller.
pub(crate) async fn until_script(stream: TcpStream) -> Option<BufReader<TcpStream>> {
    let mut stream = BufReader::new(stream);
    while read_request(&mut stream).await?[0] != "EVALSHA" {
        stream.write_all(b"+PONG\r\n").await.ok()?;
    }
    Some(stream)
}

/// Passes everything on to a server. Once told so, the connections of that moment fall silent and stay
/// open, as when a network drops their packets; later ones do not.
pub(crate) async fn proxy(server: u16) -> (u16, watch::Sender<bool>) {
    let (silence, silent) = watch::channel(false);
    let port = listen(move |mut near| {
        let mut silent = silent.clone();
        async move {
            let is_late = *silent.borrow();
            let mut far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let falls_silent = async {
                if is_late || silent.wait_for(|silent| *silent).await.is_err() {
                    std::future::pending().await
                }
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                () = falls_silent => {}
            }
            std::future::pending().await
        }
    })
    .await;
    (port, silence)
}

/// Passes everything on to a server, and takes it in small pieces.
pub(crate) async fn narrow(server: u16) -> u16 {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // Connections inherit it.
    socket.set_recv_buffer_size(2048).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(16).unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let _ =
                    tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, 512, 8192).await;
            });
        }
    });
    port
}

/// Passes everything on to a server. While it is told to be shut, there are no connections.
pub(crate) async fn gate(server: u16) -> (u16, watch::Sender<bool>) {
    let (told, shut) = watch::channel(false);
    let port = listen(move |mut near| {
        let mut shut = shut.clone();
        async move {
            if *shut.borrow() {
                return;
            }
            let mut far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = shut.wait_for(|shut| *shut) => {}
            }
        }
    })
    .await;
    (port, told)
}

/// Passes everything on to a server. As often as the number says, the reply to a script is lost: the server has run
/// it, and the connection ends in its place.
pub(crate) async fn lossy(server: u16) -> (u16, Arc<AtomicUsize>) {
    let losses = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&losses);
    let port = listen(move |mut near| {
        let left = Arc::clone(&left);
        async move {
            let Ok(mut far) = TcpStream::connect(("127.0.0.1", server)).await else {
                return;
            };
            let (mut request, mut reply) = ([0; 16_384], [0; 16_384]);
            let mut is_script = false;
            loop {
                tokio::select! {
                    count = near.read(&mut request) => {
                        let Ok(count @ 1..) = count else { return };
                        is_script = request[..count].windows(4).any(|word| word == b"EVAL");
                        if far.write_all(&request[..count]).await.is_err() {
                            return;
                        }
                    }
                    count = far.read(&mut reply) => {
                        let Ok(count @ 1..) = count else { return };
                        let is_lost = is_script
                            && left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
                        if is_lost || near.write_all(&reply[..count]).await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    })
    .await;
    (port, losses)
}

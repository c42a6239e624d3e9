//! What stands in for servers that cannot be told to misbehave.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::locks::eventually;

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

/// What a Sentinel says of the primary: its port, and its epoch if that may be asked for.
pub(crate) type Said = (u16, Option<u64>);

/// A Sentinel that says what it is told to.
pub(crate) struct FakeSentinel {
    pub(crate) port: u16,
    pub(crate) told: watch::Sender<Said>,
    /// How often it was asked.
    pub(crate) asked: Arc<AtomicUsize>,
}

impl FakeSentinel {
    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port)
    }

    /// Waits until it is asked the second time: after the search for the primary, by whoever listens to it from then on.
    pub(crate) async fn is_listened_to(&self) {
        eventually("it is listened to", async || self.asked.load(SeqCst) > 1).await;
    }
}

/// If it `tells`, it takes subscribers, and tells them of nothing.
pub(crate) async fn sentinel(said: Said, tells: bool) -> FakeSentinel {
    let (told, says) = watch::channel(said);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let said = move |_| {
        count.fetch_add(1, SeqCst);
        *says.borrow()
    };
    let port = sentinel_that_names(said, tells).await;
    FakeSentinel { port, told, asked }
}

/// The same, which says what `said` gives for each question, of which the first has the number 0. Gives its port.
pub(crate) async fn sentinel_that_names(
    said: impl Fn(usize) -> Said + Clone + Send + Sync + 'static,
    tells: bool,
) -> u16 {
    const NO_RIGHT: &str = "-NOPERM this user has no permissions\r\n";
    let asked = Arc::new(AtomicUsize::new(0));
    listen(move |stream| {
        let (said, asked) = (said.clone(), Arc::clone(&asked));
        async move {
            let mut stream = BufReader::new(stream);
            let mut epoch = None;
            while let Some(words) = read_request(&mut stream).await {
                let answer = match words.get(1).map(String::as_str) {
                    Some("get-master-addr-by-name") => {
                        let port;
                        (port, epoch) = said(asked.fetch_add(1, SeqCst));
                        let port = port.to_string();
                        format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                    }
                    Some("master") => match epoch {
                        Some(epoch) => {
                            let epoch = epoch.to_string();
                            let length = epoch.len();
                            format!("*2\r\n$12\r\nconfig-epoch\r\n${length}\r\n{epoch}\r\n")
                        }
                        None => NO_RIGHT.to_owned(),
                    },
                    _ if tells => "*0\r\n".to_owned(),
                    _ => NO_RIGHT.to_owned(),
                };
                // The asker may have gone.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await
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
                        // What comes behind a script, such as a PING, changes nothing about its answer.
                        is_script |= request[..count].windows(4).any(|word| word == b"EVAL");
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
                        is_script = false;
                    }
                }
            }
        }
    })
    .await;
    (port, losses)
}

/// What happens to a reply that belongs to a script.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mixup {
    Doubled,
    Dropped,
    /// Something else is said in its place.
    Replaced(&'static str),
}

/// Passes everything on to a server. As often as the number says, a list that the server replies is passed on twice, or not at all, so
/// that those behind it belong to other calls, or is replaced.
pub(crate) async fn mixing(server: u16, mixup: Mixup) -> (u16, Arc<AtomicUsize>) {
    let times = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&times);
    let port = listen(move |near| {
        let left = Arc::clone(&left);
        async move {
            let Ok(far) = TcpStream::connect(("127.0.0.1", server)).await else {
                return;
            };
            let (mut from_near, mut to_near) = near.into_split();
            let (from_far, mut to_far) = far.into_split();
            let mut replies = BufReader::new(from_far);
            let there = tokio::io::copy(&mut from_near, &mut to_far);
            let back = async {
                while let Some(reply) = read_reply(&mut replies).await {
                    let is_list = reply.starts_with(b"*");
                    let is_hit = is_list
                        && left
                            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                            .is_ok();
                    let passed_on = match mixup {
                        _ if !is_hit => reply,
                        Mixup::Doubled => reply.repeat(2),
                        Mixup::Dropped => Vec::new(),
                        Mixup::Replaced(by) => by.into(),
                    };
                    if to_near.write_all(&passed_on).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                _ = there => {}
                () = back => {}
            }
        }
    })
    .await;
    (port, times)
}

/// The bytes of one reply.
async fn read_reply(stream: &mut BufReader<impl tokio::io::AsyncRead + Unpin>) -> Option<Vec<u8>> {
    let (mut bytes, mut open) = (Vec::new(), 1);
    while open > 0 {
        let from = bytes.len();
        if stream.read_until(b'\n', &mut bytes).await.ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&bytes[from..]).into_owned();
        let number: i64 = line[1..].trim_end().parse().unwrap_or(-1);
        open -= 1;
        match line.as_bytes()[0] {
            b'*' => open += usize::try_from(number).unwrap_or(0),
            b'$' if number >= 0 => {
                let from = bytes.len();
                bytes.resize(from + usize::try_from(number).ok()? + 2, 0);
                stream.read_exact(&mut bytes[from..]).await.ok()?;
            }
            _ => {}
        }
    }
    Some(bytes)
}

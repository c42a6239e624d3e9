//! On sockets, whose server is the test.

use tokio::io::AsyncWriteExt as _;

use super::stage::{call, is_not_sent, pipeline_on};
use super::*;
use crate::redis::connection::socket::Socket;

/// A connection to a server that is the test.
async fn sockets() -> (Socket, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(client, listener.accept());
    (Socket::tcp(client.unwrap()), server.unwrap().0)
}

/// Ends a connection by a reset.
fn reset(server: tokio::net::TcpStream) {
    let linger = socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO));
    linger.unwrap();
}

// The time stands still: nothing is looked at before it is written to.
#[tokio::test(start_paused = true)]
async fn what_a_socket_refuses_was_not_sent() {
    for is_on_loop in [false, true] {
        let (mut socket, mut server) = sockets().await;
        let on_loop = is_on_loop.then(|| socket.move_to_loop().unwrap());
        let pipeline = pipeline_on(Box::new(socket));
        let mut first = call(&pipeline);
        let mut bytes = [0; 1024];
        assert!(server.read(&mut bytes).await.unwrap() > 0);
        server.write_all(b":1\r\n").await.unwrap();
        reset(server);
        let second = call(&pipeline);
        assert!(!pipeline.is_open());
        assert!(is_not_sent(call(&pipeline)).await);
        // Whatever reads has a turn, and finds the answer that came before the reset.
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(reason) = pipeline.poll_turn(&mut cx) else {
            panic!("it goes on");
        };
        pipeline.end(&reason);
        let answer = (&mut first).now_or_never().unwrap();
        assert!(matches!(answer, Ok(Answer::Reply(Reply::Int(1)))));
        assert!(is_not_sent(second).await);
        drop(on_loop);
    }
}

#[tokio::test]
async fn whoever_calls_after_a_moment_sees_that_the_socket_has_ended() {
    for is_on_loop in [false, true] {
        for ends in [drop::<tokio::net::TcpStream>, reset] {
            let (mut socket, server) = sockets().await;
            let on_loop = is_on_loop.then(|| socket.move_to_loop().unwrap());
            let pipeline = pipeline_on(Box::new(socket));
            ends(server);
            // Nothing else has a turn.
            std::thread::sleep(Duration::from_millis(5));
            let answer = call(&pipeline).now_or_never().unwrap();
            assert!(matches!(answer, Ok(Answer::NotSent)));
            assert!(!pipeline.is_open());
            drop(on_loop);
        }
    }
}

#[tokio::test]
async fn whoever_looks_reads_a_socket_whose_event_loop_is_busy() {
    let (mut socket, mut server) = sockets().await;
    let _on_loop = socket.move_to_loop().unwrap();
    let pipeline = pipeline_on(Box::new(socket));
    let mut call = call(&pipeline);
    server.write_all(b":1\r\n").await.unwrap();
    let answered = async {
        loop {
            pipeline.look();
            if let Some(answer) = (&mut call).now_or_never() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let answer = timeout(LIMIT, answered).await.unwrap();
    assert!(matches!(answer, Ok(Answer::Reply(Reply::Int(1)))));
}

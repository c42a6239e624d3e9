//! Turns on TCP keepalive. By that, the operating system finds out that the other side of an idle connection is gone, and the devices
//! on the way see that the connection is still in use.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// When to ask the other side of an idle connection for a sign of life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keepalive {
    /// How long the connection is idle before the first question.
    pub(crate) idle: Duration,
    /// How long to wait for an answer before asking again.
    pub(crate) interval: Duration,
    /// How many unanswered questions end the connection.
    pub(crate) count: u32,
}

impl Keepalive {
    /// Asks soon enough for a NAT that forgets idle connections after a minute, and seldom enough to cost nothing.
    pub(crate) const DEFAULT: Self = Self {
        idle: Duration::from_secs(30),
        interval: Duration::from_secs(10),
        count: 3,
    };

    pub(crate) fn set_on(&self, stream: &TcpStream) -> io::Result<()> {
        let keepalive = TcpKeepalive::new().with_time(self.idle);
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let keepalive = keepalive.with_interval(self.interval);
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        let keepalive = keepalive.with_retries(self.count);
        SockRef::from(stream).set_tcp_keepalive(&keepalive)
    }
}

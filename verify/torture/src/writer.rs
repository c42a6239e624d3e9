//! Somebody who talks to the register.

use std::io;
use std::path::Path;

use syncguard::{Grant, Key};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// A connection to the register.
pub(crate) struct Writer(BufReader<UnixStream>);

impl Writer {
    pub(crate) async fn connect(register: &Path) -> io::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(register).await?)))
    }

    /// The number under a key, as it is before the work that the lock protects; `None` if the fence is too old.
    pub(crate) async fn read(&mut self, key: &Key, grant: &Grant) -> io::Result<Option<u64>> {
        let (key, fence) = (key.as_str(), grant.fence.get());
        let answer = self.ask(&format!("read {key} {fence}")).await?;
        Ok(answer.parse().ok())
    }

    /// Writes what the work has made of the number that was read.
    pub(crate) async fn write_after(
        &mut self,
        key: &Key,
        grant: &Grant,
        number: Option<u64>,
    ) -> io::Result<()> {
        if let Some(next) = number.map(|number| number + 1) {
            let (key, fence) = (key.as_str(), grant.fence.get());
            self.ask(&format!("write {key} {fence} {next}")).await?;
        }
        Ok(())
    }

    /// The answer to a request.
    pub(crate) async fn ask(&mut self, request: &str) -> io::Result<String> {
        let stream = self.0.get_mut();
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        answer.truncate(answer.trim_end().len());
        Ok(answer)
    }
}

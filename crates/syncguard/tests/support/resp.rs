//! A plain connection to a Redis server, apart from the library's own.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A plain connection that sends commands and reads replies.
pub(crate) struct Resp {
    reader: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A reply, as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    List(Vec<Answer>),
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("expected text, got {other:?}"),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("expected a number, got {other:?}"),
        }
    }

    pub(crate) fn list(&self) -> &[Answer] {
        match self {
            Self::List(items) => items,
            other => panic!("expected a list, got {other:?}"),
        }
    }
}

impl Resp {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(Box::new(stream))
    }

    pub(crate) fn connect_unix(path: &Path) -> Self {
        Self::over(Box::new(UnixStream::connect(path).unwrap()))
    }

    fn over(stream: Box<dyn Stream>) -> Self {
        Self {
            reader: BufReader::new(stream),
        }
    }

    /// Sends a command and reads its reply.
    pub(crate) fn call(&mut self, words: &[&str]) -> Answer {
        self.send(words);
        self.read()
    }

    /// The same, where the server may be ending connections.
    pub(crate) fn try_call(&mut self, words: &[&str]) -> io::Result<Answer> {
        self.try_send(words)?;
        self.reader.fill_buf().and_then(|bytes| match bytes {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        })?;
        Ok(self.read())
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        self.try_send(words).unwrap();
    }

    fn try_send(&mut self, words: &[&str]) -> io::Result<()> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.try_send_bytes(&words)
    }

    /// Sends words that need not be text.
    pub(crate) fn send_bytes(&mut self, words: &[&[u8]]) {
        self.try_send_bytes(words).unwrap();
    }

    fn try_send_bytes(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.reader.get_mut().write_all(&request)
    }

    pub(crate) fn read(&mut self) -> Answer {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" => Answer::Text(rest.to_owned()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Int(rest.parse().unwrap()),
            "$" if rest == "-1" => Answer::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Answer::Text(String::from_utf8(bytes).unwrap())
            }
            "*" if rest == "-1" => Answer::Nil,
            "*" => Answer::List((0..rest.parse().unwrap()).map(|_| self.read()).collect()),
            _ => panic!("not a reply: {line}"),
        }
    }
}

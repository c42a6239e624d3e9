//! Finds the replies in a stream of bytes.

use std::io::{self, ErrorKind, Read};

use redis::{Parser, Value};

use crate::redis::error::{Cause, driver_error, error_text, to_error};
use crate::redis::reply::Reply;
use crate::text::error::Error;

/// Keeps the part of a reply that has been received until the rest comes.
#[derive(Default)]
pub(super) struct Replies(Parser);

impl Replies {
    /// Takes bytes until a reply is complete, and gives that. `None` if the bytes end before.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Value>, Error> {
        match self.0.parse_value(Received(bytes)) {
            Ok(value) => Ok(Some(value)),
            // `Received` has no more bytes. The next call of the parser goes on from here.
            Err(error) if error.is_io_error() => Ok(None),
            Err(error) => Err(driver_error(&error, true)),
        }
    }
}

/// Converts the driver's value to a reply of a script.
pub(super) fn reply(value: Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::SimpleString(text) => Reply::Bulk(text.into_bytes()),
        Value::Okay => Reply::Bulk(b"OK".to_vec()),
        Value::Array(items) => {
            Reply::Array(items.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        // An error inside an array, which only a user's script can give.
        Value::ServerError(error) => Reply::Error(error_text(&error)),
        _ => return Err(to_error(Cause::Unreadable, true)),
    })
}

/// The bytes received so far, of a stream that may go on.
struct Received<'a, 'b>(&'a mut &'b [u8]);

impl Read for Received<'_, '_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.0.read(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_may_be_split_anywhere() {
        let text: &[u8] =
            b"*3\r\n:1\r\n$15\r\n000000000000012\r\n:-7\r\n+OK\r\n$-1\r\n-ERR no such thing\r\n:1\r\n$3\r\na\r\n\r\n";
        let mut whole = Replies::default();
        let mut rest = text;
        let mut expected = Vec::new();
        while let Some(value) = whole.next(&mut rest).unwrap() {
            expected.push(value);
        }
        assert_eq!(expected.len(), 6);
        for piece in 1..text.len() {
            let mut replies = Replies::default();
            let mut values = Vec::new();
            for mut bytes in text.chunks(piece) {
                while let Some(value) = replies.next(&mut bytes).unwrap() {
                    values.push(value);
                }
                assert!(bytes.is_empty());
            }
            assert_eq!(values, expected, "{piece}");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for mut bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"*x\r\n",
            b"\0\0\0\r\n",
        ] {
            let error = Replies::default().next(&mut bytes).unwrap_err();
            assert!(error.is_outcome_unknown(), "{error}");
        }
    }
}

//! What a Redis server answers: replies of any shape, stored values of any shape, and errors in any words.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arbitrary::{Arbitrary as _, Result, Unstructured};
use async_trait::async_trait;
use syncguard::Error;
use syncguard::redis::{
    Cause, ClientPrefix, Plan, RedisBackend, RedisLocks, Reply, Transport, acquire, classify,
    extend, force_release, holder, is_locked, record, release, reply_code, to_error_hiding,
};

use crate::input::{
    LIMIT, SECRET, assert_discreet, assert_discreet_error, call_all, checked, request,
    text_with_secrets, with_secrets, within_limit,
};

/// A server, or a client of the application, that answers with these replies, one after the other.
#[derive(Debug)]
struct ScriptedReplies {
    replies: Mutex<Vec<Reply>>,
    is_cluster: bool,
    /// Operations are bounded: none asks for ever.
    asked: AtomicUsize,
}

#[async_trait]
impl Transport for ScriptedReplies {
    async fn run(&self, _: Plan) -> std::result::Result<Reply, Error> {
        assert!(self.asked.fetch_add(1, Relaxed) < 500, "asks for ever");
        tokio::task::yield_now().await;
        let mut replies = self.replies.lock().unwrap();
        Ok(replies.pop().unwrap_or(Reply::Nil))
    }

    fn is_cluster(&self) -> bool {
        self.is_cluster
    }
}

/// Replies of any shape, to every operation, on one server and in a cluster.
pub fn redis_replies(data: &[u8]) {
    let _ = redis_replies_of(&mut Unstructured::new(data));
}

fn redis_replies_of(input: &mut Unstructured<'_>) -> Result<()> {
    let is_cluster = bool::arbitrary(input)?;
    let mut replies = Vec::new();
    while !input.is_empty() && replies.len() < 32 {
        replies.push(reply(input, 3)?);
    }
    for reply in &replies {
        outcomes(reply);
    }
    let transport = Arc::new(ScriptedReplies {
        replies: Mutex::new(replies),
        is_cluster,
        asked: AtomicUsize::new(0),
    });
    let locks = RedisLocks {
        operation_timeout: LIMIT,
        cleanup_in_is_locked: true,
        ..RedisLocks::default()
    };
    let backend = RedisBackend::over(transport, ClientPrefix::None, &locks);
    let backend = checked(backend).expect("good settings");
    within_limit(call_all(&backend));
    Ok(())
}

fn reply(input: &mut Unstructured<'_>, depth: u8) -> Result<Reply> {
    Ok(match input.int_in_range(0..=7)? {
        0 => Reply::Nil,
        1 => Reply::Int(i64::arbitrary(input)?),
        2 => Reply::Int(input.int_in_range(-5..=5)?),
        3 => Reply::Bulk(i64::arbitrary(input)?.to_string().into_bytes()),
        4 | 5 => {
            let length = input.int_in_range(0..=64)?;
            let length = length.min(input.len());
            Reply::Bulk(with_secrets(input.bytes(length)?))
        }
        _ if depth == 0 => Reply::Array(Vec::new()),
        _ => {
            let count = input.int_in_range(0..=4)?;
            let items = (0..count).map(|_| reply(input, depth - 1));
            Reply::Array(items.collect::<Result<_>>()?)
        }
    })
}

fn outcomes(reply: &Reply) {
    assert_discreet(&format!("{reply:?}"));
    checked(acquire::outcome(&request(), reply));
    checked(release::outcome(reply));
    checked(extend::outcome(reply));
    checked(is_locked::outcome(reply));
    checked(force_release::outcome(reply));
    checked(holder::outcome(reply.clone()));
    if let Some(Some(found)) = checked(record::outcome(reply)) {
        let _ = found.is_live();
        assert_discreet(&format!("{found:?}"));
    }
}

/// Values in the place of a lock.
pub fn redis_stored(data: &[u8]) {
    let json = Reply::Bulk(with_secrets(data));
    outcomes(&json);
    for now in [0, -1, i64::MIN, i64::MAX, 1_700_000_000_000] {
        outcomes(&Reply::Array(vec![json.clone(), Reply::Int(now)]));
    }
}

/// Errors in the words of servers and clients, which may quote what was sent.
pub fn redis_errors(data: &[u8]) {
    let Some(words) = text_with_secrets(data) else {
        return;
    };
    let client = Cause::Client {
        kind: syncguard::ErrorKind::Internal,
        what: "the client failed",
        may_be_done: true,
        words: &words,
    };
    for cause in [Cause::Reply(&words), client] {
        for sent in [true, false] {
            let error = to_error_hiding(cause, sent, [SECRET]);
            assert_discreet_error(&error);
            let _ = classify(cause, sent);
        }
    }
    let _ = reply_code(&words);
}

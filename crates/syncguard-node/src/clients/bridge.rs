//! Requests to JavaScript, called questions: this is how a backend uses a client object that lives there.
//!
//! A question and its answer are JSON. Questions are sent in the same batches as completions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::answers::completion::Completion;
use crate::answers::mailbox::Mailbox;
use crate::mutex::lock;

/// The error that a client's promise was rejected with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The error's `name`.
    pub(crate) name: String,
    /// The error's `code`, if it has one. A number is given as decimal digits.
    pub(crate) code: Option<String>,
    /// The error's `message`.
    pub(crate) message: String,
}

type Answer = Result<Value, Rejection>;

/// The unanswered questions of one environment.
#[derive(Default)]
pub(crate) struct Questions {
    next: AtomicU32,
    open: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
}

impl Questions {
    /// Passes an answer on to whoever asked. Does nothing if nobody waits any more, because the operation has reached
    /// its time limit.
    pub(crate) fn answer(&self, question: u32, answer: Answer) {
        if let Some(sender) = lock(&self.open).remove(&question) {
            let _ = sender.send(answer);
        }
    }
}

/// One client object in JavaScript.
pub(crate) struct Bridge {
    mailbox: Arc<Mailbox>,
    questions: Arc<Questions>,
    client: u32,
}

impl Bridge {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, questions: &Arc<Questions>, client: u32) -> Self {
        Self {
            mailbox: Arc::clone(mailbox),
            questions: Arc::clone(questions),
            client,
        }
    }

    /// Asks the client and waits for its answer.
    pub(crate) async fn ask(&self, request: &impl Serialize) -> Answer {
        let text = serde_json::to_string(request).map_err(|error| malformed(&error))?;
        let questions = &self.questions;
        let question = questions.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&questions.open).insert(question, sender);
        // Removes the question when this future is dropped: otherwise it would stay in the map for ever.
        let _forget = ForgetQuestion {
            questions,
            question,
        };
        let client = self.client;
        self.mailbox.put(question, Completion::Ask { client, text });
        receiver.await.unwrap_or_else(|_| {
            Err(Rejection {
                name: "Error".to_owned(),
                code: None,
                message: "the environment of the client has ended".to_owned(),
            })
        })
    }

    /// Whether JavaScript has looked for questions since then.
    pub(crate) fn has_looked_since(&self, then: Instant) -> bool {
        self.mailbox.looked().is_some_and(|looked| looked > then)
    }

    /// Sends the client a message that needs no answer.
    pub(crate) fn tell(&self, message: &impl Serialize) {
        // A number without an entry in the map, so JavaScript's answer is ignored.
        let question = self.questions.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(text) = serde_json::to_string(message) {
            let client = self.client;
            self.mailbox.put(question, Completion::Ask { client, text });
        }
    }
}

/// Parses JavaScript's answer from JSON.
pub(crate) fn parse(json: &str) -> Answer {
    serde_json::from_str(json).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Rejection {
    Rejection {
        name: "SyntaxError".to_owned(),
        code: None,
        message: format!("not JSON: {error}"),
    }
}

struct ForgetQuestion<'a> {
    questions: &'a Questions,
    question: u32,
}

impl Drop for ForgetQuestion<'_> {
    fn drop(&mut self) {
        lock(&self.questions.open).remove(&self.question);
    }
}

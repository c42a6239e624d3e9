//! The stream on which Firestore tells of changes to the locks that somebody waits for.
//!
//! It has a connection of its own, because it is open for so long: the connection of the operations is tested more
//! often than servers tolerate on a quiet one. Each lock is a target. What happened while the stream was not open is
//! not asked for: whoever waits tries again as soon as a target is current.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_request::TargetChange as TargetRequest;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::listen_response::ResponseType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::query_target::QueryType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target::{
    DocumentsTarget, QueryTarget, TargetType,
};
use googleapis_tonic_google_firestore_v1::google::firestore::v1::target_change::TargetChangeType;
use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
    Document, ListenRequest, ListenResponse, Target as Added, TargetChange,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Streaming};

use super::access::{Access, Pings};
use super::wire::{between, lock_state};
use crate::firestore::error::{Failure, TransactionStep, timed_out};
use crate::firestore::transport::ReadSet;
use crate::text::error::{Error, ErrorKind};
use crate::values::time::{Clock, SystemClock};
use crate::waiting::listener::{Listen, Listener, StoreMessage};
use futures_core::future::BoxFuture;

/// The name under which the stream tells of some locks, or of those between two ids: the names of the collection and of
/// the documents, in none of which there is a `/`. Nothing follows the last `/` of a range.
pub(super) fn topic(collection: &str, what: &ReadSet) -> Option<String> {
    match what {
        ReadSet::Named { locks, .. } => Some(format!("{collection}/{}", locks.join("/"))),
        ReadSet::Between { from, before, .. } => Some(format!("{collection}/{from}/{before}/")),
        ReadSet::Owned { .. } => None,
    }
}

/// Opens such streams.
pub(super) struct Listening(Arc<Access>);

impl Listening {
    pub(super) fn new(access: &Arc<Access>) -> Self {
        Self(Arc::clone(access))
    }
}

#[async_trait]
impl Listen for Listening {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let (requests, receiver) = unbounded_channel();
        let access = Arc::clone(&self.0);
        let mut client = access.client(Pings::for_listening())?;
        let database = access.database().await.map_err(to_error)?.to_owned();
        let opening = Box::pin(async move {
            let limit = access.operation_timeout();
            let opened = async {
                let requests = UnboundedReceiverStream::new(receiver);
                let request = access.request(requests).await?;
                Ok(Box::new(client.listen(request).await?.into_inner()))
            };
            let too_late = |_| Failure::unsent(timed_out(limit, TransactionStep::Read));
            timeout(limit, opened).await.map_err(too_late)?
        });
        Ok(Box::new(ListenStream {
            responses: Responses::Opening(opening),
            targets: Targets::new(database, requests),
            heard: VecDeque::new(),
        }))
    }
}

/// An open stream.
struct ListenStream {
    responses: Responses,
    targets: Targets,
    heard: VecDeque<StoreMessage>,
}

enum Responses {
    /// Not answered yet. The server need not answer before it has something to tell, so that nobody may wait for
    /// this before the first request.
    Opening(BoxFuture<'static, Result<Box<Streaming<ListenResponse>>, Failure>>),
    Open(Box<Streaming<ListenResponse>>),
}

#[async_trait]
impl Listener for ListenStream {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            match self.targets.ids.get(name) {
                None if *is_wanted => self.targets.add(name)?,
                Some(id) if !is_wanted => {
                    let id = *id;
                    self.targets.remove(id)?;
                }
                // It has gone and come again since the last change.
                Some(id) => self.heard.extend(self.targets.listening(*id)),
                None => {}
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        if self.targets.test()?.is_none() {
            self.heard.push_back(StoreMessage::Alive);
        }
        Ok(())
    }

    fn silence(&self) -> Duration {
        // Longer than elsewhere: each test is billed as the read of one document.
        Duration::from_secs(5)
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Ok(heard);
            }
            let response = self.responses.next().await.map_err(to_error)?;
            self.heard
                .extend(self.targets.read(response).map_err(to_error)?);
        }
    }
}

impl Responses {
    async fn next(&mut self) -> Result<ResponseType, Failure> {
        loop {
            match self {
                Self::Opening(opening) => *self = Self::Open(opening.await?),
                Self::Open(responses) => match responses.message().await? {
                    Some(ListenResponse {
                        response_type: Some(response),
                    }) => return Ok(response),
                    Some(_) => {}
                    // Servers end streams now and then.
                    None => return Err(Failure::unreachable(None)),
                },
            }
        }
    }
}

/// The documents that the server was asked to tell of.
struct Targets {
    database: String,
    requests: UnboundedSender<ListenRequest>,
    by_id: HashMap<i32, ListenTarget>,
    ids: HashMap<Arc<str>, i32>,
    /// The target that was added to see whether the server answers.
    test_id: Option<i32>,
    last_id: i32,
}

struct ListenTarget {
    name: Arc<str>,
    /// Whether the server has told of what was there before. What it tells until then is no news.
    is_current: bool,
}

impl Targets {
    fn new(database: String, requests: UnboundedSender<ListenRequest>) -> Self {
        Self {
            database,
            requests,
            by_id: HashMap::new(),
            ids: HashMap::new(),
            test_id: None,
            last_id: 0,
        }
    }

    fn add(&mut self, name: &Arc<str>) -> Result<(), Error> {
        let id = self.ask_for(self.target_of(name))?;
        self.ids.insert(Arc::clone(name), id);
        let name = Arc::clone(name);
        let is_current = false;
        self.by_id.insert(id, ListenTarget { name, is_current });
        Ok(())
    }

    fn target_of(&self, name: &str) -> TargetType {
        let root = format!("{}/documents", self.database);
        let (collection, ids) = name.split_once('/').unwrap_or_default();
        let document = |id: &str| format!("{root}/{collection}/{id}");
        match ids.split('/').collect::<Vec<_>>()[..] {
            [from, before, ""] => {
                let query = between(collection, document(from), document(before));
                TargetType::Query(QueryTarget {
                    parent: root,
                    query_type: Some(QueryType::StructuredQuery(query)),
                })
            }
            ref ids => TargetType::Documents(DocumentsTarget {
                documents: ids.iter().map(|id| document(id)).collect(),
            }),
        }
    }

    /// Gives the id of a new target.
    fn ask_for(&mut self, what: TargetType) -> Result<i32, Error> {
        // Ids are not used twice, so that nothing that is told of an old target is taken for news of another.
        let id = self.last_id.checked_add(1).ok_or_else(too_many)?;
        self.last_id = id;
        self.send(TargetRequest::AddTarget(Added {
            target_id: id,
            target_type: Some(what),
            ..Added::default()
        }))?;
        Ok(id)
    }

    /// Asks for a document once more, which the server confirms; `None` if there is none. Pings are no way to find out soon that a
    /// connection was lost: servers refuse clients that ping more often than twice a minute or so.
    fn test(&mut self) -> Result<Option<i32>, Error> {
        let Some(name) = self.ids.keys().next() else {
            return Ok(None);
        };
        // One document, also of several or a range: its name is that of the first.
        let first = name.split('/').take(2).collect::<Vec<_>>().join("/");
        let id = self.ask_for(self.target_of(&first))?;
        self.test_id = Some(id);
        self.send(TargetRequest::RemoveTarget(id))?;
        Ok(Some(id))
    }

    fn remove(&mut self, id: i32) -> Result<(), Error> {
        if let Some(target) = self.by_id.remove(&id) {
            self.ids.remove(&target.name);
        }
        self.send(TargetRequest::RemoveTarget(id))
    }

    fn send(&self, asked: TargetRequest) -> Result<(), Error> {
        let request = ListenRequest {
            database: self.database.clone(),
            target_change: Some(asked),
            ..ListenRequest::default()
        };
        let sent = self.requests.send(request);
        sent.map_err(|_| to_error(Failure::unreachable(None)))
    }

    /// What a message of the server means.
    fn read(&mut self, response: ResponseType) -> Result<Vec<StoreMessage>, Failure> {
        Ok(match response {
            ResponseType::TargetChange(change) => return self.changed(change),
            ResponseType::DocumentChange(change) => {
                let over = change.document.is_none_or(is_over);
                let shown = change.target_ids.into_iter().filter(|_| over);
                self.freed(shown.chain(change.removed_target_ids))
            }
            ResponseType::DocumentDelete(gone) => self.freed(gone.removed_target_ids),
            ResponseType::DocumentRemove(gone) => self.freed(gone.removed_target_ids),
            // How many documents of the target there are.
            ResponseType::Filter(filter) if filter.count == 0 => self.freed([filter.target_id]),
            ResponseType::Filter(_) => Vec::new(),
        })
    }

    fn changed(&mut self, change: TargetChange) -> Result<Vec<StoreMessage>, Failure> {
        if let Some(cause) = change.cause {
            return Err(Failure::from_code(cause.code));
        }
        let kind = change.target_change_type();
        let mut ids = change.target_ids;
        let is_alive = self.test_id.take_if(|id| ids.contains(id)).is_some();
        if ids.is_empty() {
            ids.extend(self.by_id.keys());
        }
        let mut heard = match kind {
            TargetChangeType::Current => {
                for id in &ids {
                    if let Some(target) = self.by_id.get_mut(id) {
                        target.is_current = true;
                    }
                }
                ids.iter().filter_map(|id| self.listening(*id)).collect()
            }
            // The server starts anew, and what it tells may skip something.
            TargetChangeType::Reset => self.freed(ids),
            // Only what was not asked for: those whose removal was asked for are not known any more.
            TargetChangeType::Remove if ids.iter().any(|id| self.by_id.contains_key(id)) => {
                return Err(Failure::from_code(Code::Unavailable.into()));
            }
            TargetChangeType::Remove | TargetChangeType::Add | TargetChangeType::NoChange => {
                Vec::new()
            }
        };
        if is_alive {
            heard.push(StoreMessage::Alive);
        }
        Ok(heard)
    }

    fn listening(&self, id: i32) -> Option<StoreMessage> {
        let target = self.by_id.get(&id).filter(|target| target.is_current)?;
        Some(StoreMessage::Listening(target.name.as_ref().to_owned()))
    }

    /// That the locks of these targets may be free.
    fn freed(&self, ids: impl IntoIterator<Item = i32>) -> Vec<StoreMessage> {
        let targets = ids.into_iter().filter_map(|id| self.by_id.get(&id));
        let current = targets.filter(|target| target.is_current);
        current
            .map(|target| StoreMessage::Freed(target.name.as_ref().to_owned()))
            .collect()
    }
}

/// Whether nobody holds a lock any more, by this machine's clock. What is no lock is left to the next attempt.
fn is_over(document: Document) -> bool {
    lock_state(document).map_or(true, |lock| !lock.is_live(SystemClock.now_ms()))
}

fn to_error(failure: Failure) -> Error {
    failure.into_error(TransactionStep::Read)
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::ServiceUnavailable,
        "a stream has used up its ids",
    )
}

#[cfg(test)]
mod tests {
    use googleapis_tonic_google_firestore_v1::google::firestore::v1::{
        DocumentChange, DocumentDelete, DocumentRemove, ExistenceFilter,
    };
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;

    /// Targets 1, "a", and 2, "b"; the first is current.
    fn targets() -> (Targets, UnboundedReceiver<ListenRequest>) {
        let (requests, receiver) = unbounded_channel();
        let mut targets = Targets::new("d".to_owned(), requests);
        targets.add(&"a".into()).unwrap();
        targets.add(&"b".into()).unwrap();
        let heard = targets.read(target(TargetChangeType::Current, vec![1]));
        assert_eq!(heard.unwrap(), [StoreMessage::Listening("a".into())]);
        (targets, receiver)
    }

    fn target(kind: TargetChangeType, target_ids: Vec<i32>) -> ResponseType {
        ResponseType::TargetChange(TargetChange {
            target_change_type: kind.into(),
            target_ids,
            ..TargetChange::default()
        })
    }

    fn deleted(ids: &[i32]) -> ResponseType {
        ResponseType::DocumentDelete(DocumentDelete {
            removed_target_ids: ids.to_vec(),
            ..DocumentDelete::default()
        })
    }

    #[test]
    fn only_news_of_current_targets_counts() {
        let (mut targets, _requests) = targets();
        let freed = [StoreMessage::Freed("a".into())];
        assert_eq!(targets.read(deleted(&[1, 2, 3])).unwrap(), freed);
        let removed = DocumentRemove {
            removed_target_ids: vec![1],
            ..DocumentRemove::default()
        };
        let removed = ResponseType::DocumentRemove(removed);
        assert_eq!(targets.read(removed).unwrap(), freed);
        for (count, heard) in [(0, &freed[..]), (1, &[])] {
            let filter = ResponseType::Filter(ExistenceFilter {
                target_id: 1,
                count,
                ..ExistenceFilter::default()
            });
            assert_eq!(targets.read(filter).unwrap(), heard);
        }
        let reset = target(TargetChangeType::Reset, Vec::new());
        assert_eq!(targets.read(reset).unwrap(), freed);
        for kind in [TargetChangeType::Add, TargetChangeType::NoChange] {
            assert_eq!(targets.read(target(kind, vec![1])).unwrap(), []);
        }
    }

    #[test]
    fn a_test_is_answered_and_changes_nothing() {
        let (mut targets, mut requests) = targets();
        let id = targets.test().unwrap().unwrap();
        assert_eq!(id, 3);
        // Of others it is no answer.
        let other = target(TargetChangeType::NoChange, vec![1]);
        assert_eq!(targets.read(other).unwrap(), []);
        let added = || target(TargetChangeType::Add, vec![3]);
        assert_eq!(targets.read(added()).unwrap(), [StoreMessage::Alive]);
        assert_eq!(targets.read(added()).unwrap(), []);
        for message in [deleted(&[3]), target(TargetChangeType::Remove, vec![3])] {
            assert_eq!(targets.read(message).unwrap(), []);
        }
        assert_eq!(std::iter::from_fn(|| requests.try_recv().ok()).count(), 4);
        assert_eq!((targets.ids.len(), targets.by_id.len()), (2, 2));
        let (requests, _receiver) = tokio::sync::mpsc::unbounded_channel();
        assert_eq!(Targets::new("d".to_owned(), requests).test().unwrap(), None);
    }

    #[test]
    fn a_document_wakes_unless_it_is_a_live_lock() {
        use super::super::wire::tests::lock_document;
        let (mut targets, _requests) = targets();
        let now_ms = SystemClock.now_ms();
        for (document, wakes) in [
            (lock_document(now_ms + 30_000), false),
            (lock_document(now_ms - 10_000), true),
            (Document::default(), true),
        ] {
            let change = ResponseType::DocumentChange(DocumentChange {
                document: Some(document),
                target_ids: vec![1],
                ..DocumentChange::default()
            });
            assert_eq!(targets.read(change).unwrap().len() == 1, wakes);
        }
    }

    #[test]
    fn a_removal_that_nobody_asked_for_ends_the_stream() {
        let (mut targets, mut requests) = targets();
        let removal = || target(TargetChangeType::Remove, vec![1]);
        assert!(targets.read(removal()).is_err());
        targets.remove(1).unwrap();
        assert_eq!(targets.read(removal()).unwrap(), []);
        assert_eq!(targets.read(deleted(&[1])).unwrap(), []);
        assert!(targets.ids.len() == 1 && targets.by_id.len() == 1);
        let mut asked = Vec::new();
        while let Ok(request) = requests.try_recv() {
            asked.push(match request.target_change {
                Some(TargetRequest::AddTarget(target)) => target.target_id,
                Some(TargetRequest::RemoveTarget(id)) => -id,
                None => 0,
            });
        }
        assert_eq!(asked, [1, 2, -1]);
    }

    #[test]
    fn the_servers_reason_is_told_without_its_words() {
        let (mut targets, _requests) = targets();
        let mut refused = TargetChange {
            target_change_type: TargetChangeType::Remove.into(),
            target_ids: vec![2],
            ..TargetChange::default()
        };
        let cause = refused.cause.get_or_insert_default();
        cause.code = Code::PermissionDenied.into();
        cause.message = "secret".to_owned();
        let failure = targets.read(ResponseType::TargetChange(refused));
        let error = to_error(failure.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::AuthFailed);
        assert!(!format!("{error:?} {error}").contains("secret"));
    }
}

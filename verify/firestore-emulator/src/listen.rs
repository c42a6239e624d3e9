//! Listening: the changes to documents and query results, commit by commit, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::stream::BoxStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use crate::faults::Faults;
use crate::path::check_document_name;
use crate::proto::listen_request::TargetChange as Asked;
use crate::proto::listen_response::ResponseType;
use crate::proto::target::query_target::QueryType;
use crate::proto::target::{ResumeType, TargetType};
use crate::proto::target_change::TargetChangeType;
use crate::proto::{
    Document, DocumentChange, DocumentDelete, DocumentRemove, ListenRequest, ListenResponse,
    Target, TargetChange,
};
use crate::query::Query;
use crate::store::{Committed, Store};
use crate::time::timestamp;
use crate::transactions::Snapshot;

/// The method by which faults hit what is told of documents.
const RESPONSE: &str = "ListenResponse";

/// All streams that are open.
pub(crate) struct Streams {
    faults: Arc<Faults>,
    count: AtomicUsize,
    targets: AtomicUsize,
    /// Changes when all are to end.
    ends: watch::Sender<()>,
}

impl Streams {
    pub(crate) fn new(faults: Arc<Faults>) -> Self {
        Self {
            faults,
            count: AtomicUsize::new(0),
            targets: AtomicUsize::new(0),
            ends: watch::Sender::new(()),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// How many targets they have in all.
    pub(crate) fn targets(&self) -> usize {
        self.targets.load(SeqCst)
    }

    /// Ends all, as a server does that goes down for maintenance.
    pub(crate) fn end(&self) {
        self.ends.send_replace(());
    }

    /// Answers `requests` until the client ends them.
    pub(crate) fn start(
        self: &Arc<Self>,
        store: &Store,
        requests: Streaming<ListenRequest>,
    ) -> BoxStream<'static, Result<ListenResponse, Status>> {
        let (snapshot, commits) = store.listen();
        let (replies, receiver) = unbounded_channel();
        self.count.fetch_add(1, SeqCst);
        let listener = Listener {
            streams: Arc::clone(self),
            snapshot,
            watched: BTreeMap::new(),
            replies,
        };
        tokio::spawn(listener.run(requests, commits, self.ends.subscribe()));
        Box::pin(UnboundedReceiverStream::new(receiver))
    }
}

struct Listener {
    streams: Arc<Streams>,
    snapshot: Snapshot,
    watched: BTreeMap<i32, Watched>,
    replies: UnboundedSender<Result<ListenResponse, Status>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.streams.count.fetch_sub(1, SeqCst);
        self.streams.targets.fetch_sub(self.watched.len(), SeqCst);
    }
}

/// One target and what its client has been shown of it.
struct Watched {
    what: What,
    shown: BTreeMap<String, Arc<Document>>,
}

enum What {
    Documents(Vec<String>),
    Query(Query),
}

/// The client is gone, or is to be left.
struct Gone;

impl Listener {
    async fn run(
        mut self,
        mut requests: Streaming<ListenRequest>,
        mut commits: UnboundedReceiver<Committed>,
        mut end: watch::Receiver<()>,
    ) {
        loop {
            let done = tokio::select! {
                biased;
                Some(commit) = commits.recv() => self.show(commit),
                request = requests.message() => match request {
                    Ok(Some(request)) => self.take(request, &mut commits),
                    Ok(None) | Err(_) => Err(Gone),
                },
                () = self.replies.closed() => Err(Gone),
                _ = end.changed() => Err(Gone),
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn take(
        &mut self,
        request: ListenRequest,
        commits: &mut UnboundedReceiver<Committed>,
    ) -> Result<(), Gone> {
        // What was committed before the request belongs to its first answer.
        while let Ok(commit) = commits.try_recv() {
            self.show(commit)?;
        }
        match request.target_change {
            Some(Asked::AddTarget(target)) => match What::new(&target) {
                Ok(what) => self.add(&target, what),
                Err(status) => {
                    let _ = self.replies.send(Err(status));
                    Err(Gone)
                }
            },
            Some(Asked::RemoveTarget(id)) => {
                if self.watched.remove(&id).is_some() {
                    self.streams.targets.fetch_sub(1, SeqCst);
                }
                self.target(TargetChangeType::Remove, vec![id])
            }
            None => Ok(()),
        }
    }

    fn add(&mut self, target: &Target, what: What) -> Result<(), Gone> {
        let id = match target.target_id {
            0 => self.watched.keys().next_back().map_or(1, |last| last + 1),
            id => id,
        };
        self.target(TargetChangeType::Add, vec![id])?;
        if matches!(
            target.resume_type,
            Some(ResumeType::ResumeToken(_) | ResumeType::ReadTime(_))
        ) {
            // The past is not kept: the client starts over.
            self.target(TargetChangeType::Reset, vec![id])?;
        }
        let mut watched = Watched {
            what,
            shown: BTreeMap::new(),
        };
        if let What::Documents(names) = &watched.what {
            for name in names
                .iter()
                .filter(|name| !self.snapshot.documents.contains_key(*name))
            {
                self.send(deleted(name, id, &self.snapshot))?;
            }
        }
        for change in watched.advance(id, &self.snapshot) {
            self.send(change)?;
        }
        if self.watched.insert(id, watched).is_none() {
            self.streams.targets.fetch_add(1, SeqCst);
        }
        self.target(TargetChangeType::Current, vec![id])?;
        self.target(TargetChangeType::NoChange, Vec::new())
    }

    fn show(&mut self, commit: Committed) -> Result<(), Gone> {
        self.snapshot = commit.snapshot;
        let mut changes = Vec::new();
        for (id, watched) in &mut self.watched {
            if watched.what.covers(&commit.names) {
                changes.extend(watched.advance(*id, &self.snapshot));
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        for change in changes {
            self.send(change)?;
        }
        self.target(TargetChangeType::NoChange, Vec::new())
    }

    fn target(&self, kind: TargetChangeType, target_ids: Vec<i32>) -> Result<(), Gone> {
        self.send(ResponseType::TargetChange(TargetChange {
            target_change_type: kind.into(),
            target_ids,
            resume_token: self.snapshot.time.to_be_bytes().to_vec(),
            read_time: Some(timestamp(self.snapshot.time)),
            cause: None,
        }))
    }

    fn send(&self, response: ResponseType) -> Result<(), Gone> {
        if !matches!(response, ResponseType::TargetChange(_)) {
            let fate = self.streams.faults.draw(RESPONSE);
            if let Some(refusal) = fate.refusal {
                let _ = self.replies.send(Err(refusal.into()));
                return Err(Gone);
            }
            if fate.lost.is_some() {
                return Ok(());
            }
        }
        let response = ListenResponse {
            response_type: Some(response),
        };
        self.replies.send(Ok(response)).map_err(|_| Gone)
    }
}

impl What {
    fn new(target: &Target) -> Result<Self, Status> {
        match &target.target_type {
            Some(TargetType::Documents(target)) => {
                target
                    .documents
                    .iter()
                    .try_for_each(|name| check_document_name(name))?;
                Ok(Self::Documents(target.documents.clone()))
            }
            Some(TargetType::Query(target)) => {
                let Some(QueryType::StructuredQuery(query)) = &target.query_type else {
                    return Err(Status::invalid_argument("no query"));
                };
                Query::new(&target.parent, query).map(Self::Query)
            }
            None => Err(Status::invalid_argument("no target")),
        }
    }

    fn covers(&self, names: &[String]) -> bool {
        names.iter().any(|name| match self {
            Self::Documents(watched) => watched.contains(name),
            Self::Query(query) => query.covers(name),
        })
    }

    fn evaluate(&self, snapshot: &Snapshot) -> Vec<Arc<Document>> {
        match self {
            Self::Documents(names) => {
                let found = names.iter().filter_map(|name| snapshot.documents.get(name));
                found.cloned().collect()
            }
            Self::Query(query) => query.run(&snapshot.documents),
        }
    }
}

impl Watched {
    /// The differences between what was shown and `snapshot`, which is what is shown then.
    fn advance(&mut self, id: i32, snapshot: &Snapshot) -> Vec<ResponseType> {
        let found: BTreeMap<_, _> = self
            .what
            .evaluate(snapshot)
            .into_iter()
            .map(|document| (document.name.clone(), document))
            .collect();
        let mut changes = Vec::new();
        for name in self.shown.keys().filter(|name| !found.contains_key(*name)) {
            changes.push(if snapshot.documents.contains_key(name) {
                ResponseType::DocumentRemove(DocumentRemove {
                    document: name.clone(),
                    removed_target_ids: vec![id],
                    read_time: Some(timestamp(snapshot.time)),
                })
            } else {
                deleted(name, id, snapshot)
            });
        }
        for (name, document) in &found {
            let known = self.shown.get(name);
            if known.is_some_and(|known| known.update_time == document.update_time) {
                continue;
            }
            let document = match &self.what {
                What::Documents(_) => (**document).clone(),
                What::Query(query) => query.project(document),
            };
            changes.push(ResponseType::DocumentChange(DocumentChange {
                document: Some(document),
                target_ids: vec![id],
                removed_target_ids: Vec::new(),
            }));
        }
        self.shown = found;
        changes
    }
}

fn deleted(name: &str, id: i32, snapshot: &Snapshot) -> ResponseType {
    ResponseType::DocumentDelete(DocumentDelete {
        document: name.to_owned(),
        removed_target_ids: vec![id],
        read_time: Some(timestamp(snapshot.time)),
    })
}

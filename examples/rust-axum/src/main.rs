//! Withdrawals from accounts: one at a time for each account, whichever process a request reaches.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use syncguard::redis::{RedisBackend, RedisConfig};
use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AutoExtend, Backend, Error, Fence, Key, LockOptions, RetryPolicy, Ttl, lock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

struct App {
    backend: Arc<dyn Backend>,
    options: LockOptions,
    /// Becomes true when the server is to end.
    stopping: watch::Receiver<bool>,
    /// Stands for a table of a database, which several processes would share.
    accounts: HashMap<String, Mutex<Account>>,
}

#[derive(Default)]
struct Account {
    balance: u64,
    /// Of the last who wrote.
    fence: Option<Fence>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Withdrawal {
    amount: u64,
    #[serde(default)]
    takes_ms: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let backend = open_backend()?;
    let (stop, stopping) = watch::channel(false);
    let app = Arc::new(App {
        backend: Arc::clone(&backend),
        options: LockOptions {
            ttl: Ttl::from_millis(5_000)?,
            retry: RetryPolicy {
                timeout_ms: 2_000.0,
                ..RetryPolicy::default()
            },
            auto_extend: Some(AutoExtend::default()),
            ..LockOptions::default()
        },
        stopping,
        accounts: ["4711", "4712"]
            .map(|id| {
                let balance = 100;
                (
                    id.to_owned(),
                    Mutex::new(Account {
                        balance,
                        fence: None,
                    }),
                )
            })
            .into(),
    });
    let router = Router::new()
        .route("/accounts/{id}/withdrawals", post(withdraw))
        .with_state(app);

    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    report(&format!("listening on http://{}", listener.local_addr()?));
    let mut terminated = signal(SignalKind::terminate())?;
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            terminated.recv().await;
            // Whoever waits for a lock waits no longer; who holds one finishes.
            stop.send_replace(true);
        })
        .await?;
    // Waits for locks that are released in the background.
    backend.close().await;
    Ok(())
}

/// In the file or on the server that `SYNCGUARD_URL` names, else in a file of this example.
fn open_backend() -> Result<Arc<dyn Backend>, Error> {
    let url = std::env::var("SYNCGUARD_URL").unwrap_or_default();
    if url.starts_with("redis") {
        return Ok(Arc::new(RedisBackend::new(RedisConfig::from_url(&url)?)?));
    }
    let config = match url.strip_prefix("sqlite://") {
        Some(path) => SqliteConfig::file(path),
        None if url.is_empty() => {
            SqliteConfig::file(std::env::temp_dir().join("syncguard-axum.db"))
        }
        None => {
            return Err(Error::invalid(
                "SYNCGUARD_URL must start with sqlite: or redis:",
            ));
        }
    };
    Ok(Arc::new(SqliteBackend::new(config)?))
}

async fn withdraw(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Json(withdrawal): Json<Withdrawal>,
) -> Result<Json<Value>, Refusal> {
    let account = app.accounts.get(&id).ok_or(Refusal::NoAccount)?;
    let key = Key::new(&format!("account:{id}"))?;
    let mut stopping = app.stopping.clone();
    let guard = tokio::select! {
        guard = lock(&app.backend, &key, &app.options) => guard?,
        // What the store may have granted meanwhile is released in the background.
        _ = stopping.wait_for(|&stops| stops) => return Err(Refusal::Stopping),
    };
    // Dropped with its guard if anything goes wrong, which releases the lock in the background, too.
    let answer = tokio::select! {
        answer = work(account, &withdrawal, guard.fence()) => answer?,
        lost = guard.lost() => return Err(lost.into()),
    };
    guard.release().await?;
    Ok(answer)
}

async fn work(
    account: &Mutex<Account>,
    withdrawal: &Withdrawal,
    fence: Fence,
) -> Result<Json<Value>, Refusal> {
    let read = || account.lock().unwrap_or_else(PoisonError::into_inner);
    let balance = read().balance;
    // Stands for what takes time between reading and writing.
    tokio::time::sleep(Duration::from_millis(withdrawal.takes_ms.max(20))).await;
    let left = balance
        .checked_sub(withdrawal.amount)
        .ok_or(Refusal::NotEnough)?;
    let mut account = read();
    // UPDATE accounts SET balance = …, fence = $1 WHERE id = … AND fence <= $1
    if account.fence.is_some_and(|last| fence < last) {
        return Err(Refusal::Late);
    }
    *account = Account {
        balance: left,
        fence: Some(fence),
    };
    Ok(Json(json!({ "balance": left, "fence": fence.to_string() })))
}

/// Why nothing was withdrawn.
enum Refusal {
    NoAccount,
    NotEnough,
    Late,
    Stopping,
    Lock(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            Self::NoAccount => (StatusCode::NOT_FOUND, "there is no such account"),
            Self::NotEnough => (StatusCode::UNPROCESSABLE_ENTITY, "not enough"),
            Self::Late => (StatusCode::CONFLICT, "a later holder has written already"),
            // Nothing was written, and the client may try again.
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "Stopping"),
            Self::Lock(error) => (StatusCode::SERVICE_UNAVAILABLE, error.kind().as_str()),
        };
        let body = Json(json!({ "error": error }));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return (status, [(header::RETRY_AFTER, "1")], body).into_response();
        }
        (status, body).into_response()
    }
}

#[allow(clippy::print_stdout, reason = "an example shows where it is")]
fn report(line: &str) {
    println!("{line}");
}

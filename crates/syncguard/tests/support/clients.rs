//! Clients as applications have them, which backends are to work through.

/// A client of fred that reconnects at once, and whose commands are repeated as often as fred does it by itself.
pub(crate) async fn fred(port: u16) -> fred::clients::Client {
    use fred::interfaces::ClientLike as _;
    let client = fred_builder(port).build().unwrap();
    client.init().await.unwrap();
    client
}

/// A pool of such clients.
pub(crate) async fn fred_pool(port: u16) -> fred::clients::Pool {
    use fred::interfaces::ClientLike as _;
    let pool = fred_builder(port).build_pool(3).unwrap();
    pool.init().await.unwrap();
    pool
}

pub(crate) fn fred_builder(port: u16) -> fred::types::Builder {
    use fred::types::config::{Config, ReconnectPolicy};
    let config = Config::from_url(&format!("redis://127.0.0.1:{port}")).unwrap();
    let mut builder = fred::types::Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::new_constant(0, 20));
    builder
}

/// A connection of redis-rs that is made again when it is lost.
pub(crate) async fn manager(port: u16) -> redis::aio::ConnectionManager {
    use std::time::Duration;
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    // Above those of the operations.
    let config = redis::aio::ConnectionManagerConfig::new()
        .set_response_timeout(Some(Duration::from_secs(60)))
        .set_connection_timeout(Some(Duration::from_secs(60)))
        .set_min_delay(Duration::from_millis(20));
    client
        .get_connection_manager_with_config(config)
        .await
        .unwrap()
}

/// A connection of redis-rs that ends for good when it is lost.
pub(crate) async fn multiplexed(port: u16) -> redis::aio::MultiplexedConnection {
    use std::time::Duration;
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    // Above those of the operations.
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap()
}

/// A pool of that many sessions, with these settings for each.
pub(crate) fn deadpool(
    config: &syncguard::postgres::PostgresConfig,
    size: usize,
    settings: &str,
) -> deadpool_postgres::Pool {
    let mut driver = tokio_postgres::Config::new();
    for host in &config.hosts {
        driver.host(&host.name).port(host.port);
    }
    if let Some(user) = &config.user {
        driver.user(user);
    }
    if let syncguard::postgres::Password::Text(password) = &config.password {
        driver.password(password);
    }
    if let Some(database) = &config.database {
        driver.dbname(database);
    }
    if let Some(name) = &config.application_name {
        driver.application_name(name);
    }
    if !settings.is_empty() {
        driver.options(settings);
    }
    let manager = deadpool_postgres::Manager::new(driver, tokio_postgres::NoTls);
    deadpool_postgres::Pool::builder(manager)
        .max_size(size)
        .build()
        .unwrap()
}

/// A client of an emulator.
pub(crate) async fn firestore_db(address: &str, project: &str) -> firestore::FirestoreDb {
    let credentials = google_cloud_auth::credentials::anonymous::Builder::new().build();
    firestore_db_as(address, project, credentials).await
}

/// The same with other credentials.
pub(crate) async fn firestore_db_as(
    address: &str,
    project: &str,
    credentials: google_cloud_auth::credentials::Credentials,
) -> firestore::FirestoreDb {
    let options = firestore::FirestoreDbOptions::new(project.to_owned())
        .with_firebase_api_url(format!("http://{address}"));
    firestore::FirestoreDb::with_options_auth(options, credentials)
        .await
        .unwrap()
}

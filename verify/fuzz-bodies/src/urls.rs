//! URLs and settings. Whatever is wrong with them, the error shows no part of them; backends that are made of them open
//! nothing.

use arbitrary::{Arbitrary as _, Result, Unstructured};
use syncguard::firestore::{Credentials, Endpoint, FirestoreBackend, FirestoreConfig};
use syncguard::postgres::{PostgresBackend, PostgresConfig, PostgresOptions, Tables};
use syncguard::redis::{
    ClientPrefix, Names, NatMap, RedisBackend, RedisCluster, RedisConfig, RedisSentinel,
    RedisServer,
};

use crate::input::{SECRET, assert_discreet, checked, text_with_secrets, within_limit};

/// URLs of Redis, with Sentinels, of clusters and of sockets.
pub fn redis_urls(data: &[u8]) {
    let Some(url) = text_with_secrets(data) else {
        return;
    };
    if let Some(config) = checked(RedisConfig::from_url(&url)) {
        // Hosts and names may be shown; credentials may not.
        let hidden = RedisConfig {
            username: Some(SECRET.to_owned()),
            password: Some(SECRET.to_owned()),
            server: RedisConfig::default().server,
            connection_name: None,
            client_key_prefix: String::new(),
            locks: syncguard::redis::RedisLocks::default(),
            ..config.clone()
        };
        assert_discreet(&format!("{hidden:?}"));
        drop(checked(RedisBackend::new(config)));
    }
}

/// URLs of PostgreSQL, and its key=value form.
pub fn postgres_urls(data: &[u8]) {
    let Some(url) = text_with_secrets(data) else {
        return;
    };
    let config = checked(PostgresConfig::from_url(&url));
    if let Some(config) = config {
        within_limit(async {
            drop(checked(PostgresBackend::new(
                config,
                PostgresOptions::default(),
            )));
        });
    }
    let (one, other) = url.split_once('\n').unwrap_or((&url, "fences"));
    checked(Tables::new(one, other));
}

/// Settings of Redis, field by field, as clients and options give them.
pub fn redis_settings(data: &[u8]) {
    // Too few bytes give empty values, not an error.
    let _ = redis_settings_of(&mut Unstructured::new(data));
}

fn redis_settings_of(input: &mut Unstructured<'_>) -> Result<()> {
    let server = match input.int_in_range(0..=3)? {
        0 => RedisServer::Tcp {
            host: text(input)?,
            port: u16::arbitrary(input)?,
        },
        1 => RedisServer::Unix(text(input)?.into()),
        2 => RedisServer::Sentinel(RedisSentinel {
            nodes: nodes(input)?,
            name: text(input)?,
            username: Option::arbitrary(input)?,
            password: Some(SECRET.to_owned()),
        }),
        _ => RedisServer::Cluster(RedisCluster {
            nodes: nodes(input)?,
            nat_map: Some(
                nodes(input)?
                    .into_iter()
                    .zip(nodes(input)?)
                    .collect::<NatMap>(),
            ),
        }),
    };
    let mut config = RedisConfig {
        server,
        database: u8::arbitrary(input)?,
        username: Some(SECRET.to_owned()),
        password: Some(SECRET.to_owned()),
        connection_name: Option::arbitrary(input)?,
        client_key_prefix: text(input)?,
        ..RedisConfig::default()
    };
    config.locks.key_prefix = text(input)?;
    let prefix = match input.int_in_range(0..=2)? {
        0 => ClientPrefix::None,
        1 => ClientPrefix::Theirs,
        _ => ClientPrefix::Ours(config.client_key_prefix.clone()),
    };
    let makers: [fn(&str, ClientPrefix) -> _; 2] = [Names::new, Names::in_cluster];
    for make in makers {
        checked(make(&config.locks.key_prefix, prefix.clone()));
    }
    drop(checked(RedisBackend::new(config)));
    Ok(())
}

/// Settings of Firestore.
pub fn firestore_settings(data: &[u8]) {
    let _ = firestore_settings_of(&mut Unstructured::new(data));
}

fn firestore_settings_of(input: &mut Unstructured<'_>) -> Result<()> {
    let emulated = bool::arbitrary(input)?;
    let host = text(input)?;
    let mut config = FirestoreConfig {
        project_id: Some(text(input)?),
        database_id: text(input)?,
        collection: text(input)?,
        fence_collection: text(input)?,
        emulator_host: emulated.then(|| host.clone()),
        endpoint: (!emulated).then_some(Endpoint { host, tls: false }),
        ..FirestoreConfig::default()
    };
    if bool::arbitrary(input)? {
        config.credentials = Credentials::Json(text(input)?);
    }
    within_limit(async { drop(checked(FirestoreBackend::new(config))) });
    Ok(())
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    let length = input.int_in_range(0..=24)?;
    let length = length.min(input.len());
    Ok(text_with_secrets(input.bytes(length)?).unwrap_or_default())
}

fn nodes(input: &mut Unstructured<'_>) -> Result<Vec<(String, u16)>> {
    let count = input.int_in_range(0..=3)?;
    (0..count)
        .map(|_| Ok((text(input)?, u16::arbitrary(input)?)))
        .collect()
}

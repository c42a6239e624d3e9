//! Networks that fail: the same for all stores that are reached by TCP.

use std::io;

use syncguard::ErrorKind;

use super::row::Row;
use super::stage::{Act, Stage, Store};
use crate::clock::Clock;
use crate::proxy::Delivery;
use crate::workers::Workers;

pub(crate) fn rows<S: Store + 'static>(
    store: &'static str,
    start: fn(Option<&Clock>) -> io::Result<S>,
    seen: &'static [ErrorKind],
) -> Vec<Row> {
    let act = |name, strike| {
        Act::new(store, name, start, strike)
            .behind_proxy()
            .seen(seen)
    };
    vec![
        act("reset", reset).into(),
        act("refused", refused).into(),
        act("half-open", half_open).into(),
        act("silence", silence).into(),
        act("latency", latency).into(),
        act("no-bandwidth", no_bandwidth).into(),
        act("reply-dropped", no_replies).into(),
    ]
}

/// All connections are reset, several times.
fn reset<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    for _ in 0..stage.random.u8(1..5) {
        stage.proxy()?.reset();
        stage.pause(0..100);
    }
    Ok(())
}

/// All connections are reset, and no new ones can be made for a while.
fn refused<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.proxy()?.set(Delivery::Refused);
    stage.proxy()?.reset();
    stage.pause(100..2_000);
    stage.proxy()?.set(Delivery::Normal);
    Ok(())
}

/// The other side of all connections disappears without a word, as when a firewall has forgotten them. New ones work.
fn half_open<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.proxy()?.half_open();
    Ok(())
}

/// Nothing comes through for a while, also on new connections, and what was sent meanwhile is lost.
fn silence<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    for_a_while(stage, Delivery::Silent)
}

/// Everything takes longer.
fn latency<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    let delay = stage.time(20..300);
    for_a_while(stage, Delivery::Slow(delay))
}

/// In one direction, nothing comes through for a while, and then all of it.
fn no_bandwidth<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    let delivery = if stage.random.bool() {
        Delivery::NoBandwidthTo
    } else {
        Delivery::NoBandwidthFrom
    };
    for_a_while(stage, delivery)
}

/// Requests are carried out, and connections are reset in place of the answers.
fn no_replies<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    in_place_of_replies(stage, Delivery::NoReplies)
}

/// Requests are carried out, and a proxy answers for itself.
pub(super) fn own_errors<S: Store>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    in_place_of_replies(stage, Delivery::OwnErrors(S::PROXY_ERROR))
}

fn in_place_of_replies<S: Store>(stage: &mut Stage<S>, delivery: Delivery) -> io::Result<()> {
    let dropped = stage.proxy()?.dropped_replies();
    stage.proxy()?.set(delivery);
    while stage.proxy()?.dropped_replies() == dropped {
        stage.pause(1..5);
    }
    stage.pause(0..300);
    stage.proxy()?.set(Delivery::Normal);
    Ok(())
}

fn for_a_while<S: Store>(stage: &mut Stage<S>, delivery: Delivery) -> io::Result<()> {
    stage.proxy()?.set(delivery);
    stage.pause(300..3_000);
    stage.proxy()?.set(Delivery::Normal);
    Ok(())
}

//! Consumer processes that are killed while messages flow, each published twice.
//!
//! Nothing is left to luck: a victim shows that it is at work before it dies, and some die while a handler stands between its
//! beginning and its effect, or between its effect and its record. The messages that they stand at are published only once:
//! nothing else could make up for one that is lost.

use std::ops::Range;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_consumer::Consumer;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Stage, connect, names};

const SCENE: &str = "ONLYONCE_VICTIM";
const DEATH: &str = "ONLYONCE_VICTIM_DIES";
const SHOWN: &str = "a victim is at work";
/// How messages begin that are published only once.
const ONCE: &str = "once-";

/// Until a victim is at work: its process, its connections, and for Kafka its group, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// Before an effect, and once more after it: time to die in.
const HALF: Duration = Duration::from_millis(5);
/// Between two messages.
const PACE: Duration = Duration::from_millis(2);

/// What a victim was told, if this process is one.
pub(crate) fn told<const N: usize>() -> Option<[String; N]> {
    let scene = std::env::var(SCENE).ok()?;
    Some(scene.split('|').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap())
}

/// What a victim does until it is killed. A broker that can't be reached for a moment is tried again.
pub(crate) async fn consume(consumer: impl Fn() -> Consumer, url: &str, queue: &str) {
    let _consuming = loop {
        match consumer().start(connect(url, queue)).await {
            Ok(consuming) => break consuming,
            Err(error) => eprintln!("a victim did not start: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    // Its end comes sooner, or nobody is there any more to kill it.
    tokio::time::sleep(PATIENCE * 2).await;
    std::process::exit(1);
}

/// When a victim dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// At any moment of its start.
    Early,
    /// At any moment of its work.
    AtWork,
    /// While one of its handlers has begun, and has had no effect yet.
    BeforeAnEffect,
    /// While one of its handlers has had its effect, and that is not on record.
    AfterAnEffect,
}

impl Death {
    fn of(kill: u32) -> Self {
        match kill % 8 {
            0 => Self::AfterAnEffect,
            3 => Self::BeforeAnEffect,
            1 | 5 => Self::Early,
            _ => Self::AtWork,
        }
    }

    fn is_in_the_middle(self) -> bool {
        matches!(self, Self::BeforeAnEffect | Self::AfterAnEffect)
    }

    fn moment(self) -> Duration {
        Duration::from_millis(rand::random_range(0..400))
    }
}

/// What the handlers of a process do besides their effect: take their time, and stand still where they are to be killed.
#[derive(Clone)]
pub(crate) struct Act {
    death: Option<Death>,
    shown: Arc<AtomicBool>,
}

impl Act {
    /// As this process was told; in one that is not to be killed, only time is taken.
    pub(crate) fn of_this_process() -> Self {
        let all = [Death::Early, Death::AtWork, Death::BeforeAnEffect, Death::AfterAnEffect];
        let told = std::env::var(DEATH).ok();
        let death = all.into_iter().find(|death| told == Some(format!("{death:?}")));
        Self { death, shown: Arc::default() }
    }

    pub(crate) async fn before_the_effect(&self, message: &str) {
        match self.death {
            Some(Death::AtWork) => drop(self.is_shown()),
            Some(Death::BeforeAnEffect) => self.stands_at(message).await,
            _ => {}
        }
        tokio::time::sleep(HALF).await;
    }

    pub(crate) async fn after_the_effect(&self, message: &str) {
        if self.death == Some(Death::AfterAnEffect) {
            self.stands_at(message).await;
        }
        tokio::time::sleep(HALF).await;
    }

    /// The first message of its kind stays here; the others go on.
    async fn stands_at(&self, message: &str) {
        if message.starts_with(ONCE) && self.is_shown() {
            std::future::pending::<()>().await;
        }
    }

    fn is_shown(&self) -> bool {
        let first = !self.shown.swap(true, Ordering::SeqCst);
        if first {
            println!("{SHOWN}");
        }
        first
    }
}

/// How many messages and kills: few in a test, many in a soak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) messages: u32,
    pub(crate) kills: u32,
}

impl Plan {
    /// Half as many on Kafka: a mock cluster lets each new member of its group wait for seconds.
    pub(crate) fn on(stage: &Stage) -> Self {
        let asked = std::env::var("ONLYONCE_CONSUMER_KILLS").ok().and_then(|kills| kills.parse().ok());
        let (kills, each): (u32, u32) = asked.map_or((8, 25), |kills| (kills, 100));
        let kills = if matches!(stage, Stage::Kafka(_)) { kills.div_ceil(2) } else { kills };
        Self { messages: kills * each, kills }
    }

    /// Those at which a victim stood when it died, each published once.
    pub(crate) fn in_the_middle(self) -> impl Iterator<Item = String> {
        let kills = (0..self.kills).filter(|kill| Death::of(*kill).is_in_the_middle());
        kills.map(|kill| format!("{ONCE}{kill}"))
    }

    /// All that are published.
    pub(crate) fn all(self) -> impl Iterator<Item = String> {
        names(self.messages).chain(self.in_the_middle())
    }

    /// The messages that are new while this victim lives: there is always something to do.
    fn share(self, kill: u32) -> Range<u32> {
        let upto = |kill: u32| self.messages * kill / self.kills;
        upto(kill)..upto(kill + 1)
    }

    /// One victim after the other is killed, while messages flow: new ones, and those of the last share for the second time.
    pub(crate) async fn kill_while_they_flow(self, test: &str, scene: &str, publish: impl AsyncFn(String)) {
        let mut last = 0..0;
        for kill in 0..self.kills {
            let death = Death::of(kill);
            let victim = start(test, scene, death);
            let share = self.share(kill);
            let flows = async {
                if death.is_in_the_middle() {
                    publish(format!("{ONCE}{kill}")).await;
                }
                flow(share.clone(), last, &publish).await;
            };
            tokio::join!(flows, dies(victim, death));
            last = share;
        }
        flow(0..0, last, &publish).await;
    }
}

async fn flow(fresh: Range<u32>, again: Range<u32>, publish: &impl AsyncFn(String)) {
    for n in 0..fresh.len().max(again.len()) as u32 {
        for range in [&fresh, &again] {
            if range.start + n < range.end {
                publish(format!("message-{}", range.start + n)).await;
                tokio::time::sleep(PACE).await;
            }
        }
    }
}

fn start(test: &str, scene: &str, death: Death) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene)
        .env(DEATH, format!("{death:?}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn dies(mut victim: Child, death: Death) {
    if death != Death::Early {
        let mut said = BufReader::new(victim.stdout.as_mut().unwrap()).lines();
        let shows = async {
            while let Some(line) = said.next_line().await.unwrap() {
                if line.ends_with(SHOWN) {
                    return;
                }
            }
            panic!("a victim ended by itself");
        };
        let shown = tokio::time::timeout(PATIENCE, shows).await;
        shown.unwrap_or_else(|_| panic!("a victim did not get to work within {PATIENCE:?}"));
    }
    tokio::time::sleep(death.moment()).await;
    victim.kill().await.unwrap();
}

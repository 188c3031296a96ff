//! Servers of one test alone, for what no shared server survives: being killed, stopped, emptied and failed over.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce_testkit::{free_pair, free_port};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(40);

/// The release of the distribution, and one of at least 7.2, where a `WAIT` counts otherwise.
pub(crate) const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// A Redis that ends with its handle.
pub(crate) struct Redis {
    program: &'static str,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Redis {
    /// With nothing written to disk, and these arguments besides.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_program(PROGRAMS[0], arguments).await
    }

    pub(crate) async fn start_program(program: &'static str, arguments: &[&str]) -> Self {
        Self::start_at(program, free_port(), arguments).await
    }

    async fn start_at(program: &'static str, port: u16, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut redis = Self { program, port, arguments, child: None, folder, variables: Vec::new() };
        redis.restart().await;
        redis
    }

    /// One whose clock is behind by that much.
    #[cfg(target_os = "linux")]
    pub(crate) async fn start_behind(by: Duration, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let library = clock_library(folder.path());
        let variables = vec![("LD_PRELOAD", library), ("BEHIND_SECONDS", by.as_secs().to_string())];
        let (program, port) = (PROGRAMS[0], free_port());
        let mut redis = Self { program, port, arguments, child: None, folder, variables };
        redis.restart().await;
        redis
    }

    /// A replica of this one, which has all that it has.
    pub(crate) async fn replica(&self, arguments: &[&str]) -> Self {
        let primary = format!("127.0.0.1 {}", self.port);
        let arguments = [&["--replicaof", &primary], arguments].concat();
        let replica = Self::start_program(self.program, &arguments).await;
        until("the replica follows", || replica.says("info replication", "master_link_status:up")).await;
        replica
    }

    /// Waits until the replica has all that this one has. (A `WAIT` would not do: it is about the writes of its own connection.)
    pub(crate) async fn has_told(&self, replica: &Self) {
        let offset = |server: &Self, name: &str| {
            let info = server.ask("info replication");
            info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let told = offset(self, "master_repl_offset:").expect("every server says how far it is");
        until("the replica has it", || offset(replica, "slave_repl_offset:").is_some_and(|at| at >= told))
            .await;
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The folder in which it runs.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Without a word, as by a loss of power.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again at the same port, with what is on its disk.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let mut command = server(self.program);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--logfile", "log"]);
        command.arg("--dir").arg(self.folder.path());
        if !self.arguments.iter().any(|word| word == "--appendonly") {
            command.args(["--appendonly", "no"]);
        }
        command.args(["--save", "", "--repl-diskless-sync-delay", "0"]);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        self.child = Some(command.spawn().expect("setpriv is installed"));
        let answers = || self.says("ping", "PONG") || self.says("ping", "NOAUTH");
        until(&format!("{} is installed, and answers", self.program), answers).await;
    }

    /// It runs no more, and nobody is told.
    pub(crate) fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    pub(crate) fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    /// What it answers to a command, in `redis-cli`'s words.
    pub(crate) fn ask(&self, words: &str) -> String {
        ask(self.port, words)
    }

    pub(crate) fn says(&self, words: &str, answer: &str) -> bool {
        self.ask(words).contains(answer)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server that ends with this process, however that ends.
fn server(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// What the server at this port answers to a command.
pub(crate) fn ask(port: u16, words: &str) -> String {
    let asked = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words.split(' ')).output();
    let asked = asked.expect("redis-cli is installed");
    [asked.stdout, asked.stderr].iter().map(|said| String::from_utf8_lossy(said).into_owned()).collect()
}

/// A primary with replicas, and Sentinels that agree by two.
pub(crate) struct Watched {
    pub(crate) servers: Vec<Redis>,
    sentinels: Vec<(u16, Child, TempDir)>,
}

impl Watched {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let primary = Redis::start(arguments).await;
        let replica = primary.replica(arguments).await;
        let mut watched = Self { servers: vec![primary, replica], sentinels: Vec::new() };
        for _ in 0..3 {
            watched.add_sentinel();
        }
        let sees = |port: u16| {
            let said = ask(port, "sentinel master main");
            said.contains("num-other-sentinels\n2") && said.contains("num-slaves\n1")
        };
        until("the Sentinels know each other", || watched.sentinels.iter().all(|(port, ..)| sees(*port)))
            .await;
        watched
    }

    fn add_sentinel(&mut self) {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nlogfile log\nsentinel monitor main 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n",
            folder.path().display(),
            self.servers[0].port,
        );
        std::fs::write(&file, text).unwrap();
        let mut command = server(PROGRAMS[0]);
        command.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.sentinels.push((port, command.spawn().unwrap(), folder));
    }

    pub(crate) fn url(&self) -> String {
        let names: Vec<_> = self.sentinels.iter().map(|(port, ..)| format!("127.0.0.1:{port}")).collect();
        format!("redis-sentinel://{}/main", names.join(","))
    }

    /// Waits until all Sentinels name this server.
    pub(crate) async fn leads(&self, server: usize) {
        let port = self.servers[server].port.to_string();
        let agree = || {
            self.sentinels
                .iter()
                .all(|(sentinel, ..)| ask(*sentinel, "sentinel get-master-addr-by-name main").contains(&port))
        };
        until("the Sentinels have failed over", || agree() && self.servers[server].says("role", "master"))
            .await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for (_, sentinel, _) in &mut self.sentinels {
            let _ = sentinel.kill();
            let _ = sentinel.wait();
        }
    }
}

/// Three primaries with a replica each.
pub(crate) struct OwnCluster {
    pub(crate) nodes: Vec<Redis>,
}

impl OwnCluster {
    pub(crate) async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            let more = "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 1500";
            nodes.push(Redis::start_at(PROGRAMS[0], free_pair(), &more.split(' ').collect::<Vec<_>>()).await);
        }
        let mut create = Command::new("redis-cli");
        create
            .args(["--cluster", "create"])
            .args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
        let made = create.args(["--cluster-replicas", "1", "--cluster-yes"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let cluster = Self { nodes };
        cluster.is_whole().await;
        cluster
    }

    pub(crate) fn url(&self) -> String {
        let names: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", names.join(","))
    }

    /// Waits until all slots are served, and every replica follows.
    pub(crate) async fn is_whole(&self) {
        let is_well = |node: &Redis| {
            node.says("cluster info", "cluster_state:ok")
                && !node.says("info replication", "master_link_status:down")
        };
        // A node that was just told to be a replica is shown as a primary without slots for a moment.
        let agrees = |node: &Redis| {
            node.ask("cluster nodes").matches(" slave ").count()
                + node.ask("cluster nodes").matches("myself,slave").count()
                == self.nodes.len() / 2
        };
        let whole = || self.nodes.iter().all(|node| is_well(node) && agrees(node));
        until("the Cluster is whole", whole).await;
    }

    /// The number of the node that holds this key.
    pub(crate) fn holder(&self, key: &str) -> usize {
        // Some node may be dead.
        let slots = self.nodes.iter().map(|node| node.ask(&format!("cluster keyslot {key}")));
        let slot: u16 = slots.filter_map(|said| said.trim().parse().ok()).next().expect("some node lives");
        let holds = |node: &Redis| {
            let nodes = node.ask("cluster nodes");
            let me = nodes.lines().find(|line| line.contains("myself")).unwrap_or_default().to_owned();
            me.contains("master")
                && me.split(' ').skip(8).any(|range| {
                    let (from, to) = range.split_once('-').unwrap_or((range, range));
                    matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(from), Ok(to)) if (from..=to).contains(&slot))
                })
        };
        self.nodes.iter().position(holds).expect("somebody holds every slot")
    }

    /// The numbers of the replicas of a node.
    pub(crate) fn replicas_of(&self, node: usize) -> Vec<usize> {
        let port = format!("master_port:{}", self.nodes[node].port);
        (0..self.nodes.len()).filter(|other| self.nodes[*other].says("info replication", &port)).collect()
    }
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let clock = Instant::now();
    while !is_so() {
        assert!(clock.elapsed() < PATIENCE, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A library that puts the wall clock of a process back.
#[cfg(target_os = "linux")]
fn clock_library(folder: &std::path::Path) -> String {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <sys/time.h>
        #include <time.h>
        static long behind(void) { const char *s = getenv("BEHIND_SECONDS"); return s ? atol(s) : 0; }
        int gettimeofday(struct timeval *restrict t, void *restrict z) {
            static int (*real)(struct timeval *, void *);
            if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
            int done = real(t, z);
            if (!done && t) t->tv_sec -= behind();
            return done;
        }
        int clock_gettime(clockid_t which, struct timespec *t) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
            int done = real(which, t);
            if (!done && which == CLOCK_REALTIME) t->tv_sec -= behind();
            return done;
        }
    "#;
    let (file, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&file, source).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).arg("-ldl").status();
    assert!(built.expect("cc is installed").success());
    library.display().to_string()
}

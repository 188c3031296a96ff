//! The peers in Python and Node: installed beside the build, run as processes of their own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::redis::Rates;

pub(crate) struct Foreign {
    port: String,
    python: PathBuf,
    node: PathBuf,
}

impl Foreign {
    /// Installs what is missing, under `target/peers`.
    pub(crate) fn install(url: &str) -> Result<Self, Box<dyn Error>> {
        let (_, port) = url.rsplit_once(':').ok_or("a URL redis://host:port")?;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = here.join("target/peers");
        let (python, node) = (folder.join("python"), folder.join("node"));
        std::fs::create_dir_all(&node)?;
        if !python.exists() {
            run(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
        }
        let wanted = here.join("python/requirements.txt");
        run(Command::new(python.join("bin/pip")).args(["install", "--quiet", "-r"]).arg(wanted))?;
        for file in ["package.json", "peers.mjs"] {
            std::fs::copy(here.join("node").join(file), node.join(file))?;
        }
        run(Command::new("npm").args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&node))?;
        Ok(Self { port: port.to_owned(), python: python.join("bin/python"), node: node.join("peers.mjs") })
    }

    pub(crate) fn rates(&self, span: Duration) -> Result<Rates, Box<dyn Error>> {
        let seconds = span.as_secs_f64().to_string();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/peers.py");
        let mut python = Command::new(&self.python);
        let mut said = run(python.args(["-W", "ignore"]).arg(script).args([&self.port, &seconds]))?;
        said += &run(Command::new("node").arg(&self.node).args([&self.port, &seconds]))?;
        let mut rates = Rates::new();
        for line in said.lines() {
            let mut words = line.split(' ');
            if let (Some(job), Some(library), Some(rate)) = (words.next(), words.next(), words.next()) {
                rates.insert((job.into(), library.into()), rate.parse()?);
            }
        }
        Ok(rates)
    }
}

fn run(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8(done.stdout)?);
    }
    Err(format!("{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr)).into())
}

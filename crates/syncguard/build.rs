//! Makes whole scripts for Redis. A script includes what it shares with others by name: a line `-- @include clock` stands for
//! `parts/clock.lua`. tests/redis/scripts has them as the server gets them.

use std::path::Path;
use std::{env, fs, io};

const FOLDER: &str = "src/redis/operations";
const PARTS: &str = "src/redis/operations/parts";

fn main() -> io::Result<()> {
    // Each by its name: of a folder, cargo would ask when it was written, and in a fresh clone it is new. A script that is added comes with a
    // line in mod.rs.
    for folder in [FOLDER, PARTS] {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_file() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let Some(out) = env::var_os("OUT_DIR") else {
        return Err(io::Error::other("cargo says where to write"));
    };
    for entry in fs::read_dir(FOLDER)? {
        let path = entry?.path();
        if let Some(name) = path
            .file_name()
            .filter(|_| path.extension() == Some("lua".as_ref()))
        {
            let script = whole(&fs::read_to_string(&path)?)?;
            fs::write(Path::new(&out).join(name), script)?;
        }
    }
    Ok(())
}

/// The text with all that it includes, as far to the right as the line that names it. What is included may include more.
fn whole(text: &str) -> io::Result<String> {
    let mut script = String::new();
    for line in text.lines() {
        let Some((indent, name)) = line.split_once("-- @include ") else {
            script += &format!("{line}\n");
            continue;
        };
        let path = Path::new(PARTS).join(format!("{name}.lua"));
        let part = fs::read_to_string(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        for line in whole(&part)?.lines() {
            let indent = if line.is_empty() { "" } else { indent };
            script += &format!("{indent}{line}\n");
        }
    }
    Ok(script)
}

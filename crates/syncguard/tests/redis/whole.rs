//! The scripts as the server gets them. `scripts` beside this file has them, to be read and to be run with `redis-cli --eval`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::support::suite::tests;

tests![the_scripts_are_those_that_stand_here];

/// The scripts in a folder, by the names of their files.
fn scripts(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let scripts = files.filter(|path| path.extension() == Some("lua".as_ref()));
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (
            name,
            fs::read_to_string(path).unwrap().replace("\r\n", "\n"),
        )
    };
    scripts.map(named).collect()
}

/// With UPDATE_SCRIPTS in its environment, it writes them.
async fn the_scripts_are_those_that_stand_here() {
    // Tests run in the folder of their crate. Where this was compiled may be another clone, and gone.
    let here = Path::new("tests/redis/scripts");
    let built = scripts(Path::new(env!("OUT_DIR")));
    if env::var_os("UPDATE_SCRIPTS").is_some() {
        fs::remove_dir_all(here).unwrap();
        fs::create_dir(here).unwrap();
        for (name, text) in &built {
            fs::write(here.join(name), text).unwrap();
        }
    }
    let read = scripts(here);
    assert!(built.keys().eq(read.keys()), "{:?}", built.keys());
    for (name, text) in &built {
        assert!(
            !text.contains("@include"),
            "{name} includes in the middle of a line"
        );
        assert!(
            *text == read[name],
            "{name} is another: UPDATE_SCRIPTS=1 writes it"
        );
    }
}

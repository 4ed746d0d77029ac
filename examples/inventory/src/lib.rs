//! What the inventory examples share: a shelf with 50 items, and 200 buyers in two processes who want one each, all at
//! once. How a buyer takes an item is each example's own.

use std::{
    env,
    error::Error,
    io,
    process::{Child, Command, ExitCode, Stdio},
};

use latchwork_harness::Cluster;

/// The only item on the shelf, by its primary key.
pub const ITEM: i32 = 7;

const STOCK: u32 = 50;
const PROCESSES: u32 = 2;
const BUYERS: u32 = 100;
const AS_BUYERS: &str = "--buyers";

/// Anything that can go wrong in an example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Runs an example: `buy` has so many buyers want an item of the database at this URL, all at once, and says how many
/// got one. It is called in each of two further processes.
pub fn run(buy: impl FnOnce(&str, u32) -> Result<u32, Failure>) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [AS_BUYERS, url] => buy(url, BUYERS).map(|bought| println!("{bought}")),
        [] => sell(),
        _ => Err("it takes no arguments".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn sell() -> Result<(), Failure> {
    let cluster = Cluster::builder().setting("max_connections", 100).start()?;
    cluster.psql(&format!(
        "CREATE TABLE stock (item int PRIMARY KEY, remaining int NOT NULL CHECK (remaining >= 0)); \
         INSERT INTO stock VALUES ({ITEM}, {STOCK})"
    ))?;
    println!("{STOCK} items, and {BUYERS} buyers in each of {PROCESSES} processes who want one.");
    let processes = (0..PROCESSES).map(|_| buyers(&cluster.url()));
    let mut sold = 0;
    for process in processes.collect::<io::Result<Vec<_>>>()? {
        sold += bought(process)?;
    }
    let remaining: u32 = cluster.psql("SELECT remaining FROM stock")?.parse()?;
    println!("{sold} were sold, and {remaining} remain.");
    if sold == STOCK && remaining == 0 {
        return Ok(());
    }
    Err(format!("{STOCK} should have been sold, and none should remain").into())
}

fn buyers(url: &str) -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .args([AS_BUYERS, url])
        .stdout(Stdio::piped())
        .spawn()
}

fn bought(process: Child) -> Result<u32, Failure> {
    let output = process.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("a process of buyers failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Runs an example's program, and looks at what it says.
///
/// # Panics
///
/// If it sells another number of items, or fails.
pub fn check(program: &str) {
    let output = Command::new(program).output().expect("it is built beside its test");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("50 were sold, and 0 remain."), "{said}");
}

//! A running daemon gives what is in its store to who moves it, and refuses writes meanwhile.
//!
//! Over a socket beside the store: the other side names the move and says what the refusals are to say, is given a backup, and then
//! says either that everything has arrived, which is noted for good, or nothing more, which opens the store again. It tells now and
//! then how far it is: who is there and gets no further is left, too. A line counts once its end is there: what a kill has cut off was
//! not said.

use super::wrong;
use crate::backup;
use crate::backup::socket::{Giving, Timed, answer};
use crate::store::StoreError;
use crate::store::disk::snapshot::Snapshots;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The socket beside the store.
pub(super) const NAME: &str = "move.sock";
/// How a request begins; the move's name follows, and what refusals say.
pub(super) const BEGIN: &str = "move ";
/// Said now and then, with a number that grows as long as it goes on.
pub(super) const STILL: &str = "still ";
/// How the last line begins; the rest is what is noted: the move's name and where everything is.
pub(super) const ARRIVED: &str = "arrived ";
/// The answer to that.
pub(super) const NOTED: &str = "noted";
/// Longest line, in bytes.
const LINE_MAX: u64 = 4096;
/// Bytes written at once.
const BUFFER: usize = 256 << 10;
/// How long a move may take in all; writes are refused meanwhile.
const WHOLE: Duration = Duration::from_secs(12 * 3600);
/// What becomes of the store then.
const AGAIN: &str = "writes are taken again";
/// How long it may get no further.
const STANDSTILL: Duration = Duration::from_secs(300);

/// Answers whoever connects, until shutdown.
pub async fn serve(store: PathBuf, snapshots: Snapshots, cluster: String, shutdown: CancellationToken) {
    let giving = move |stream| -> Giving {
        let (snapshots, cluster) = (snapshots.again(), cluster.clone());
        Box::new(move || give(&stream, &snapshots, &cluster))
    };
    answer(&store, (NAME, "a move of the store"), giving, shutdown).await;
}

/// Gives everything to one who moves it.
///
/// # Errors
/// The other side ended before everything had arrived, as far as it is known; the store takes writes again then.
pub(super) fn give(stream: &UnixStream, snapshots: &Snapshots, cluster: &str) -> Result<(), StoreError> {
    let mut lines = BufReader::new(stream);
    let first = line(&mut lines).map_err(wrong)?;
    let asked = first.strip_prefix(BEGIN).and_then(|asked| asked.split_once(' '));
    let (id, why) = asked.ok_or_else(|| wrong("nothing that is asked for a move was asked"))?;
    let held = snapshots.hold(why)?;
    tracing::warn!(why, "the store is being moved: writes are refused");
    let end = Instant::now() + WHOLE;
    let timed = Timed {
        stream: stream.try_clone().map_err(wrong)?,
        end,
    };
    backup::write(snapshots, cluster, &mut BufWriter::with_capacity(BUFFER, timed))?;
    let noted = wait_for_all(&mut lines, id, (STANDSTILL, end))?;
    held.leave(&noted)?;
    say(stream, NOTED).map_err(wrong)
}

/// Waits until everything has arrived; gives what is to be noted of the move of this name.
fn wait_for_all(
    lines: &mut impl BufRead,
    id: &str,
    (standstill, end): (Duration, Instant),
) -> Result<String, StoreError> {
    let (mut furthest, mut since) = (None, Instant::now());
    loop {
        let said = line(lines);
        let said = said.map_err(|error| wrong(format!("the move has ended before its end ({error}): {AGAIN}")))?;
        if let Some(noted) = said.strip_prefix(ARRIVED) {
            let is_ours = noted
                .split_once(' ')
                .is_some_and(|(of, text)| of == id && !text.is_empty());
            return match is_ours {
                true => Ok(noted.to_owned()),
                false => Err(wrong(format!("another move has arrived than has begun: {AGAIN}"))),
            };
        }
        let far = said.strip_prefix(STILL).and_then(|far| far.parse::<u64>().ok());
        let far = far.ok_or_else(|| wrong(format!("the move has said what is not understood: {AGAIN}")))?;
        let now = Instant::now();
        if now >= end {
            return Err(wrong(format!("the move takes too long: {AGAIN}")));
        }
        if Some(far) > furthest {
            (furthest, since) = (Some(far), now);
        } else if now.duration_since(since) >= standstill {
            return Err(wrong(format!("the move gets no further: {AGAIN}")));
        }
    }
}

/// Says a line, all of it or nothing.
pub(super) fn say(mut to: impl Write, line: &str) -> std::io::Result<()> {
    // One write: what a kill cuts off of several is read as another line.
    to.write_all(format!("{line}\n").as_bytes())
}

/// The next line.
///
/// # Errors
/// The other side has ended, perhaps in the middle of one, or says nothing.
pub(super) fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    from.take(LINE_MAX).read_line(&mut line)?;
    let whole = line.strip_suffix('\n').map(str::to_owned);
    whole.ok_or_else(|| std::io::Error::new(ErrorKind::UnexpectedEof, "nothing more was said"))
}

#[cfg(test)]
mod tests;

//! Where the end of a log begins, counted in lines.

use super::files::LogFiles;
use super::follow::READ_SIZE;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

/// Where the last `lines` complete lines (and what follows them) begin. It is looked for block by block from the end: each is a piece
/// of work of its own, so that others have their turn and nothing goes on when nobody waits for it.
pub(super) async fn tail_offset(files: &LogFiles, file: &fs::File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let (mut at, mut left) = (end, lines);
    while at > 0 && left > 0 {
        let begin = at.saturating_sub(READ_SIZE as u64);
        let file = file.try_clone()?;
        match files.run(move || count_back(&file, begin, at, end, left)).await? {
            Counted::Begins(position) => return Ok(position),
            Counted::Left(lines) => left = lines,
        }
        at = begin;
    }
    Ok(at)
}

/// What is known after one more block, nearer to the file's beginning.
enum Counted {
    /// The first wanted line begins there.
    Begins(u64),
    /// So many lines more are wanted.
    Left(u64),
}

fn count_back(file: &fs::File, begin: u64, at: u64, end: u64, mut left: u64) -> io::Result<Counted> {
    let mut block = vec![0; usize::try_from(at - begin).unwrap_or(READ_SIZE)];
    file.read_exact_at(&mut block, begin)?;
    for (index, byte) in block.iter().enumerate().rev() {
        let position = begin + index as u64;
        // The newline that ends the file ends its last line; it does not begin another.
        if *byte == b'\n' && position + 1 != end {
            left -= 1;
            if left == 0 {
                return Ok(Counted::Begins(position + 1));
            }
        }
    }
    Ok(Counted::Left(left))
}

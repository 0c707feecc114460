//! What a daemon need not hold. glibc holds on to freed memory: per thread in arenas, and below whatever still lives at a
//! heap's end. A daemon that was busy once would look busy for ever. And what it ran at its start stays mapped, though nothing of
//! it runs again.
//!
//! Owns the allocator's settings and the program's mappings, for binaries alone: also that they stay where they are while there is need. With another C library the former does nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What glibc reads as a process begins (its manual, "Tunables"), colons between.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Freed memory that each thread keeps for itself: nobody can give it back, and a page with one such piece stays.
const NO_THREAD_CACHES: &str = "glibc.malloc.tcache_count=0";

/// How often freed memory goes back.
const EVERY: Duration = Duration::from_secs(30);
/// How long a start may take.
const START: Duration = Duration::from_secs(40);

/// Keeps the number of arenas small. To be called before the first thread starts.
#[allow(unsafe_code)]
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: sets a number inside the allocator, before there are other threads. If it is refused nothing changes.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}

/// Has the allocator keep nothing for threads or small sizes, where little is allocated and much lives long: of a busy
/// kubelet's memory that was a third. Only a process that begins can be told so: this one begins again, once, as the same
/// process, with the same arguments. Where that fails it goes on as it is. To be called first of all.
#[allow(unsafe_code)]
pub fn keep_no_caches() {
    #[cfg(target_env = "gnu")]
    {
        let given = std::env::var_os(TUNABLES);
        if begun_again(given.as_deref()) {
            // SAFETY: there is no other thread yet. Programs that are run from here shall not inherit it.
            unsafe { std::env::remove_var(TUNABLES) };
            // SAFETY: sets a number inside the allocator, before there are other threads.
            unsafe { libc::mallopt(libc::M_MXFAST, 0) };
            return;
        }
        let mut arguments = std::env::args_os();
        let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else {
            return;
        };
        let mut again = Command::new(program);
        let _did_not_begin = again.arg0(name).args(arguments).env(TUNABLES, with_ours(given)).exec();
    }
}

fn begun_again(given: Option<&OsStr>) -> bool {
    given.is_some_and(|given| given.as_bytes().ends_with(NO_THREAD_CACHES.as_bytes()))
}

fn with_ours(given: Option<OsString>) -> OsString {
    let mut all = given
        .filter(|given| !given.is_empty())
        .map_or_else(OsString::new, |mut given| {
            given.push(":");
            given
        });
    all.push(NO_THREAD_CACHES);
    all
}

/// Gives freed memory back to the system now and then, for as long as the future is polled.
pub async fn give_back() {
    loop {
        trim();
        crate::beat::wait(EVERY).await;
    }
}

#[allow(unsafe_code)]
fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes the allocator's own locks, and touches only what is free.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Lets go of the program's own pages, once, when its start is over: code, constants and relocations, two thirds of which are
/// not used again. What is used is mapped again at once, as long as the kernel has it; the rest is the first that the kernel takes
/// when memory gets short.
pub async fn forget_start() {
    tokio::time::sleep(START).await;
    forget_program();
}

fn forget_program() {
    let done = with_program(false, |address, length| {
        // SAFETY: these pages are the file's, and nobody can write to them: at the next access they are what they were.
        #[allow(unsafe_code)]
        unsafe {
            libc::madvise(address, length, libc::MADV_DONTNEED)
        }
    });
    if let Err(error) = done {
        tracing::debug!(%error, "the program's own pages stay mapped");
    }
}

/// Whether this process may hold its pages: it is a daemon, and not one of many parts of another program, as in tests.
static MAY_HOLD: AtomicBool = AtomicBool::new(false);

/// Has [`hold`] do something in this process. For binaries.
pub fn may_hold() {
    MAY_HOLD.store(true, Ordering::Relaxed);
}

/// Reads what this process can run into memory and keeps it there, or lets go of it. The kernel takes pages of programs when memory is
/// short, and a program that is to do something about it would wait for the disk at each of its steps. May block for long.
///
/// # Errors
/// The kernel refuses, as it does without CAP_IPC_LOCK beyond RLIMIT_MEMLOCK.
pub fn hold(held: bool) -> io::Result<()> {
    if !MAY_HOLD.load(Ordering::Relaxed) {
        return Ok(());
    }
    hold_program(held)?;
    if !held {
        forget_program();
    }
    Ok(())
}

fn hold_program(held: bool) -> io::Result<()> {
    with_program(true, |address, length| {
        // SAFETY: says of pages that are mapped whether they may leave memory, and changes nothing in them.
        #[allow(unsafe_code)]
        unsafe {
            match held {
                true => libc::mlock(address, length),
                false => libc::munlock(address, length),
            }
        }
    })
}

/// What [`with_object`] is told, and tells.
struct Walk<'a> {
    libraries: bool,
    /// What is done with some pages: nought if it could be.
    act: &'a dyn Fn(*mut libc::c_void, libc::size_t) -> libc::c_int,
    done: io::Result<()>,
}

/// Does something with all pages of the program that nobody can write to, and with those of its libraries too; the first thing that goes
/// wrong is told, and keeps nothing else from being done.
#[allow(unsafe_code)]
fn with_program(libraries: bool, act: impl Fn(*mut libc::c_void, libc::size_t) -> libc::c_int) -> io::Result<()> {
    let mut walk = Walk {
        libraries,
        act: &act,
        done: Ok(()),
    };
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the callback has the type that is wanted, and its data outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(with_object), (&raw mut walk).cast()) };
    }
    walk.done
}

/// Of what the loader has loaded the program comes first; the libraries are others' too.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
unsafe extern "C" fn with_object(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    walk: *mut libc::c_void,
) -> libc::c_int {
    const LAST: libc::c_int = 1;
    // SAFETY: the loader's own description of the program, and what [`with_program`] gave it; both last as long as this call.
    let (info, segments, walk) = unsafe {
        let info = &*info;
        let segments = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, segments, &mut *walk.cast::<Walk<'_>>())
    };
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Some(page) = u64::try_from(page).ok().filter(|page| page.is_power_of_two()) else {
        return LAST;
    };
    let never_written =
        |segment: &&libc::Elf64_Phdr| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0;
    for segment in segments.iter().filter(never_written) {
        let address = info.dlpi_addr + segment.p_vaddr;
        let begin = address & !(page - 1);
        let length = address + segment.p_memsz - begin;
        if (walk.act)(begin as *mut libc::c_void, length as usize) != 0 && walk.done.is_ok() {
            walk.done = Err(io::Error::last_os_error());
        }
    }
    match walk.libraries {
        true => 0,
        false => LAST,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_the_allocator_was_told_is_kept_and_a_process_begins_again_once() {
        for (given, told) in [
            (None, "glibc.malloc.tcache_count=0"),
            (Some(""), "glibc.malloc.tcache_count=0"),
            (
                Some("glibc.malloc.check=1"),
                "glibc.malloc.check=1:glibc.malloc.tcache_count=0",
            ),
        ] {
            assert!(!begun_again(given.map(OsStr::new)), "{given:?}");
            let ours = with_ours(given.map(OsString::from));
            assert_eq!(ours, told);
            assert!(begun_again(Some(&ours)));
        }
    }

    /// A line of this program's code in `/proc/self/smaps`, kB.
    fn of_code(name: &str) -> u64 {
        let program = std::env::current_exe().expect("a path");
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut lines = maps.lines();
        let code = |line: &&str| line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy());
        lines.by_ref().find(code).expect("code");
        let line = lines.find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// One test: a program has one code.
    #[test]
    fn the_program_goes_on_with_what_it_uses_alone_or_holds_all_of_it() {
        let before = of_code("Rss:");
        forget_program();
        let after = of_code("Rss:");
        assert!(after < before, "{after} of {before} kB");
        assert_eq!(of_code("Locked:"), 0);
        if hold_program(true).is_err() {
            // Whoever runs this may not hold that much.
            return;
        }
        // Told in parts, where other processes run the same program.
        assert!(of_code("Locked:") > 0);
        forget_program();
        assert_eq!(
            of_code("Rss:"),
            of_code("Size:"),
            "what is held is not let go of by the way"
        );
        hold_program(false).expect("let go");
        assert_eq!(of_code("Locked:"), 0);
        forget_program();
        assert!(of_code("Rss:") < of_code("Size:"));
    }

    #[test]
    fn what_is_no_daemon_holds_nothing() {
        hold(true).expect("nothing done");
        assert!(!MAY_HOLD.load(Ordering::Relaxed));
    }
}

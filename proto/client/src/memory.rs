//! What a daemon need not hold. glibc holds on to freed memory: per thread in arenas, and below whatever still lives at a
//! heap's end. A daemon that was busy once would look busy for ever. And what it ran at its start stays mapped, though nothing of
//! it runs again.
//!
//! Owns the allocator's settings and the program's mappings, for binaries alone. With another C library the former does nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
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
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        trim();
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

#[allow(unsafe_code)]
fn forget_program() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the callback has the type that is wanted, and needs no data.
        unsafe { libc::dl_iterate_phdr(Some(forget_first), std::ptr::null_mut()) };
    }
}

/// Of what the loader has loaded the program comes first; the libraries are others' too.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
unsafe extern "C" fn forget_first(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    const LAST: libc::c_int = 1;
    // SAFETY: the loader's own description of the program, which lasts as long as this call.
    let (info, segments) = unsafe {
        let info = &*info;
        (info, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
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
        // SAFETY: these pages are the file's, and nobody can write to them: at the next access they are what they were.
        unsafe { libc::madvise(begin as *mut libc::c_void, length as usize, libc::MADV_DONTNEED) };
    }
    LAST
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

    /// What of this program's code is mapped, kB.
    fn mapped_code() -> u64 {
        let program = std::env::current_exe().expect("a path");
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut lines = maps.lines();
        let code = |line: &&str| line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy());
        lines.by_ref().find(code).expect("code");
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a size");
        resident.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn the_program_goes_on_with_what_it_uses_alone() {
        let before = mapped_code();
        forget_program();
        let after = mapped_code();
        assert!(after < before, "{after} of {before} kB");
    }
}

//! The kernel calls of project quotas, which no safe wrapper covers. The only `unsafe` of the kubelet.
#![allow(unsafe_code)]

use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: reading and writing 28 bytes, group `X`, numbers 31 and 32.
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;
/// `Q_GETINFO`, `Q_GETQUOTA` and `Q_SETQUOTA`, of projects (`PRJQUOTA`).
const GET_INFO: u32 = command(0x80_0005);
const GET_QUOTA: u32 = command(0x80_0007);
const SET_QUOTA: u32 = command(0x80_0008);
/// `QIF_BLIMITS`: the limits of blocks are meant.
const LIMITS_OF_BLOCKS: u32 = 1;

const fn command(of: u32) -> u32 {
    of << 8 | 2
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    pub(super) flags: u32,
    extent_size: u32,
    extents: u32,
    pub(super) project: u32,
    copy_extent_size: u32,
    rest: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    hard_limit: u64,
    soft_limit: u64,
    pub(super) bytes: u64,
    inodes_hard_limit: u64,
    inodes_soft_limit: u64,
    pub(super) inodes: u64,
    times: [u64; 2],
    valid: u32,
}

/// `struct if_dqinfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Info {
    graces: [u64; 2],
    flags: u32,
    valid: u32,
}

const _: () = assert!(size_of::<Attributes>() == 28 && size_of::<Quota>() == 72 && size_of::<Info>() == 24);

fn done(succeeds: bool) -> io::Result<()> {
    match succeeds {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Asks about the quotas of the file system a descriptor is of; kernels before 5.14 cannot.
fn ask<T>(at: BorrowedFd<'_>, command: u32, id: u32, told: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed, and the pointer is to what the command reads or writes: its size is asserted above.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, at.as_raw_fd(), command, id, &raw mut *told) };
    done(result == 0)
}

/// Whether projects are counted: an error if they are not.
pub(super) fn is_counted(at: BorrowedFd<'_>) -> io::Result<()> {
    ask(at, GET_INFO, 0, &mut Info::default())
}

pub(super) fn quota(at: BorrowedFd<'_>, id: u32) -> io::Result<Quota> {
    let mut quota = Quota::default();
    ask(at, GET_QUOTA, id, &mut quota)?;
    Ok(quota)
}

/// Limits in blocks of 1 KiB; 0 is none.
pub(super) fn set_limit(at: BorrowedFd<'_>, id: u32, blocks: u64) -> io::Result<()> {
    let mut quota = Quota {
        hard_limit: blocks,
        soft_limit: blocks,
        valid: LIMITS_OF_BLOCKS,
        ..Quota::default()
    };
    ask(at, SET_QUOTA, id, &mut quota)
}

pub(super) fn attributes(of: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open while borrowed, and the pointer is to a live structure of the size the request names.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut attributes) };
    done(result == 0)?;
    Ok(attributes)
}

pub(super) fn set_attributes(of: BorrowedFd<'_>, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: as above; the structure is only read.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), SET_ATTRIBUTES as _, &raw const *attributes) };
    done(result == 0)
}

//! The two kernel calls no safe wrapper covers: a netlink socket option and ethtool's queries. The only `unsafe` here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SOL_NETLINK`.
const SOL_NETLINK: libc::c_int = 270;
/// `ETHTOOL_GLINK`: is there a carrier?
const ETHTOOL_GLINK: u32 = 0x0000_000a;
/// `ETHTOOL_GTXCSUM`: does it leave checksums to others?
const ETHTOOL_GTXCSUM: u32 = 0x0000_0016;
/// `ETHTOOL_STXCSUM`: it shall, or not.
const ETHTOOL_STXCSUM: u32 = 0x0000_0017;

/// Switches a boolean netlink socket option on.
pub(crate) fn enable_netlink_option(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open while borrowed; the pointer and length describe a live c_int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut EthtoolValue,
    padding: [u8; 16],
}

/// Asks for the carrier of `interface`, which makes the kernel process the link event it may still be holding back.
/// `socket` is any socket of the interface's namespace. Returns whether there is a carrier.
pub(crate) fn carrier(socket: BorrowedFd<'_>, interface: &str) -> io::Result<bool> {
    ethtool(socket, interface, ETHTOOL_GLINK, 0).map(|value| value != 0)
}

/// Whether `interface` leaves the checksums of what it sends to hardware, or to whoever needs them.
pub(crate) fn transmit_checksum_offload(socket: BorrowedFd<'_>, interface: &str) -> io::Result<bool> {
    ethtool(socket, interface, ETHTOOL_GTXCSUM, 0).map(|value| value != 0)
}

/// Switches that on or off.
pub(crate) fn set_transmit_checksum_offload(socket: BorrowedFd<'_>, interface: &str, on: bool) -> io::Result<()> {
    ethtool(socket, interface, ETHTOOL_STXCSUM, u32::from(on)).map(drop)
}

/// One of ethtool's commands that have a number for argument and answer.
fn ethtool(socket: BorrowedFd<'_>, interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut name = [0u8; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    let mut value = EthtoolValue { command, data };
    let mut request = InterfaceRequest {
        name,
        data: &raw mut value,
        padding: [0; 16],
    };
    // SAFETY: the request is laid out as the kernel's `struct ifreq` (name, then a pointer; padded to its full 40
    // bytes), and `value`, which it points to, outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 {
        Ok(value.data)
    } else {
        Err(io::Error::last_os_error())
    }
}

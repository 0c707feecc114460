//! The two kernel calls no safe wrapper covers: a netlink socket option and the ethtool link query. The only `unsafe` here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SOL_NETLINK`.
const SOL_NETLINK: libc::c_int = 270;
/// `ETHTOOL_GLINK`: is there a carrier?
const ETHTOOL_GLINK: u32 = 0x0000_000a;

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
    let mut name = [0u8; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    let mut value = EthtoolValue {
        command: ETHTOOL_GLINK,
        data: 0,
    };
    let mut request = InterfaceRequest {
        name,
        data: &raw mut value,
        padding: [0; 16],
    };
    // SAFETY: the request is laid out as the kernel's `struct ifreq` (name, then a pointer; padded to its full 40
    // bytes), and `value`, which it points to, outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 {
        Ok(value.data != 0)
    } else {
        Err(io::Error::last_os_error())
    }
}

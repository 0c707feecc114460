//! How much room something takes: bytes that are allocated and not given back.
//!
//! Owns the allocator of this crate's tests, which counts what each thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// What an allocation takes: units of 16 bytes.
fn count(layout: Layout, sign: isize) {
    let bytes = layout.size().next_multiple_of(16).cast_signed();
    // A thread that ends counts no more.
    let _ = HELD.try_with(|held| held.set(held.get() + sign * bytes));
}

// SAFETY: the system's allocator does all that is asked of this one.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What this thread holds, in bytes.
pub(crate) fn held() -> isize {
    HELD.with(Cell::get)
}

//! Exports without an owner.
#![allow(unsafe_code)]

use crate::{NotOk, TestChild};

pub(crate) fn leave(child: &mut TestChild, id: u32) -> Result<String, NotOk> {
    let exported = child.exports.remove(&id).ok_or("no such export")?;
    // SAFETY: this process works on one thread, so nothing is unmapped meanwhile.
    unsafe { exported.leave() };
    Ok(String::new())
}

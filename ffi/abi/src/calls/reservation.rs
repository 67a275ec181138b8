//! Address space for imports at an address of the caller's choice.

use super::{call, given, release};
use crate::failure::Failure;
use crate::objects::{Library, Reservation};
use crate::status::CStatus;
use std::mem::MaybeUninit;

/// Reserves `size` bytes of address space (`cuMemAddressReserve`), a multiple of the
/// granularity (2 MiB on an H200), at an address that the driver chooses: for `place`
/// of `gpuipc_import_options`.
///
/// `*out` is to be given to `gpuipc_reservation_free`.
///
/// Fails with `GPUIPC_DRIVER_CALL` (1 for another size, 2 without room),
/// `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_reservation_new(
    ipc: Option<&Library>,
    size: usize,
    out: Option<&mut MaybeUninit<Box<Reservation>>>,
) -> CStatus {
    call("gpuipc_reservation_new", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        out.write(Box::new(ipc.reserve(size)?));
        Ok(())
    })
}

/// Wraps a reservation of the caller's own (`cuMemAddressReserve`), for imports into
/// it. `base` and `size`, in bytes, are those of one whole reservation of this
/// process. The caller frees it, after this object and all that is mapped in it. The
/// driver itself maps past the end of a reservation, over whatever lies there, so
/// that a size that is too large does harm.
///
/// `*out` is to be given to `gpuipc_reservation_free`, which does not free the
/// addresses.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for no addresses or more than there are,
/// `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_reservation_of_caller(
    ipc: Option<&Library>,
    base: u64,
    size: usize,
    out: Option<&mut MaybeUninit<Box<Reservation>>>,
) -> CStatus {
    call("gpuipc_reservation_of_caller", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        if base == 0 || size == 0 || base.checked_add(size as u64).is_none() {
            return Err(Failure::argument(format!(
                "{size} bytes at {base:#x} are no reservation"
            )));
        }
        let driver = ipc.driver()?;
        // SAFETY: the header asks the caller for one whole reservation of this
        // process that stays until this object and all mappings in it are gone.
        let reservation = unsafe { gpuipc::Reservation::of_caller(driver, base, size) };
        out.write(Box::new(Reservation { reservation }));
        Ok(())
    })
}

/// The first address (a `CUdeviceptr`).
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_reservation_base(
    reservation: Option<&Reservation>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_reservation_base", || {
        let (object, out) = (given("reservation", reservation)?, given("out", out)?);
        out.write(object.reservation.base());
        Ok(())
    })
}

/// Bytes of address space.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_reservation_size(
    reservation: Option<&Reservation>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_reservation_size", || {
        let (object, out) = (given("reservation", reservation)?, given("out", out)?);
        out.write(object.reservation.size());
        Ok(())
    })
}

/// Lets go of it. NULL is allowed. The addresses are freed (`cuMemAddressFree`) when
/// nothing that was imported into them is mapped any more; those of
/// `gpuipc_reservation_of_caller` are not.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_reservation_free(reservation: Option<Box<Reservation>>) {
    release("gpuipc_reservation_free", reservation);
}

//! A library that lacks a call which nothing here makes is no worse for it.

/// The methods' source, in which each call that they make is a word.
const METHODS: &str = concat!(
    include_str!("../src/driver/mod.rs"),
    include_str!("../src/driver/memory.rs"),
    include_str!("../src/driver/pool.rs"),
    include_str!("../src/driver/vmm.rs"),
);

macro_rules! fields {
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        const FIELDS: &[(&str, &str)] = &[$((stringify!($field), stringify!($need)),)*];
    };
}

gpuipc_sys::driver_calls!(fields);

#[test]
fn what_is_required_is_called() {
    let called = |field: &str| METHODS.contains(&format!(" {field}("));
    let required = FIELDS.iter().filter(|(_, need)| *need == "required");
    let idle: Vec<_> = required.filter(|(field, _)| !called(field)).collect();
    assert!(idle.is_empty(), "required, and never called: {idle:?}");
}

#[test]
fn what_only_tests_and_programs_need_is_optional() {
    for name in [
        "cuGetErrorString",
        "cuMemHostAlloc",
        "cuMemFreeHost",
        "cuMemsetD8_v2",
        "cuCtxSynchronize",
        "cuMemGetInfo_v2",
        "cuMemAlloc_v2",
    ] {
        let call = gpuipc_sys::CALLS.iter().find(|call| call.symbol == name);
        assert!(!call.expect("in the list").required, "{name}");
    }
}

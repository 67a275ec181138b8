//! What the doctor reads from NVML, told by a stand-in for that library.

use crate::place::{Ended, Place, Running};
use serde_json::Value;
use std::process::Command;

/// NVML with two GPUs, by the structures of its public header.
const SOURCE: &str = r#"
#include <string.h>
typedef unsigned int code;
typedef struct { unsigned char uuid[16]; code status; unsigned int clique; unsigned char state; } v1;
typedef struct { unsigned int version; unsigned char uuid[16]; code status; unsigned int clique;
                 unsigned char state; unsigned int health; } v2;
static int gpus[2], started;
code nvmlInit_v2(void) { started = 1; return 0; }
code nvmlShutdown(void) { started = 0; return 0; }
code nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return started ? 0 : 1; }
code nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **device) { *device = &gpus[i]; return i < 2 ? 0 : 2; }
code nvmlDeviceGetUUID(void *device, char *text, unsigned int length) {
  const char *uuid = device == &gpus[0] ? "GPU-first" : "GPU-second";
  if (strlen(uuid) + 1 > length) return 7;
  strcpy(text, uuid);
  return 0;
}
#ifdef NEWER
code nvmlDeviceGetGpuFabricInfoV(void *device, v2 *info) {
  if (info->version != (sizeof(v2) | 2u << 24)) return 25;
  memset(info->uuid, device == &gpus[0] ? 0xab : 0, 16);
  info->status = 0; info->clique = 77; info->state = 3; info->health = 0xffffffff;
  return 0;
}
#endif
#ifdef OLDER
code nvmlDeviceGetGpuFabricInfo(void *device, v1 *info) {
  memset(info->uuid, 0xcd, 16);
  info->status = 999; info->clique = 5; info->state = device == &gpus[0] ? 3 : 1;
  return 0;
}
#endif
"#;

/// The doctor's words with this stand-in; `None` without a C compiler.
fn told(place: &Place, define: &str) -> Option<Value> {
    let source = place.path("nvml.c");
    std::fs::write(&source, SOURCE).expect("there is room");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", define, "-o"])
        .arg(place.path("libnvidia-ml.so.1"))
        .arg(&source)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("SKIP: no C compiler here");
        return None;
    }
    let mut command = place.gpuipc(["doctor", "--json", "--driver", "cuda"]);
    command
        .env("LD_LIBRARY_PATH", place.path(""))
        .env("GPUIPC_LIBCUDA", "/nonexistent");
    let ended: Ended = Running::start(&mut command).end();
    Some(serde_json::from_str(&ended.stdout).expect("one JSON object"))
}

fn gpu(report: &Value, index: usize) -> (String, String) {
    let subject = format!("NVML GPU {index}");
    let checks = report["checks"].as_array().expect("checks");
    let check = checks
        .iter()
        .find(|check| check["subject"] == subject.as_str());
    let check = check.unwrap_or_else(|| panic!("{subject}: {report}"));
    let text = |name: &str| check[name].as_str().expect("text").to_owned();
    (text("verdict"), text("found"))
}

#[test]
fn the_newer_call_gives_domain_and_clique() {
    let place = Place::new();
    let Some(report) = told(&place, "-DNEWER") else {
        return;
    };
    let (verdict, found) = gpu(&report, 0);
    assert_eq!(verdict, "ok", "{found}");
    assert!(found.contains("GPU-first"), "{found}");
    assert!(found.contains(&"ab".repeat(16)), "{found}");
    assert!(found.contains("clique 77"), "{found}");
    let (verdict, found) = gpu(&report, 1);
    assert_eq!(verdict, "note", "{found}");
    assert!(found.contains("GPU-second"), "{found}");
    assert!(found.contains("cluster UUID is zero"), "{found}");
}

#[test]
fn the_older_call_is_asked_where_there_is_no_newer_one() {
    let place = Place::new();
    let Some(report) = told(&place, "-DOLDER") else {
        return;
    };
    let (verdict, found) = gpu(&report, 0);
    assert_eq!(verdict, "no", "{found}");
    assert!(found.contains("999"), "{found}");
    let (verdict, found) = gpu(&report, 1);
    assert_eq!(verdict, "no", "{found}");
    assert!(found.contains("has not started"), "{found}");
}

#[test]
fn without_either_call_the_fabric_is_unknown() {
    let place = Place::new();
    let Some(report) = told(&place, "-DNEITHER") else {
        return;
    };
    let (verdict, found) = gpu(&report, 0);
    assert_eq!(verdict, "unknown", "{found}");
    assert!(
        found.contains("lacks nvmlDeviceGetGpuFabricInfo"),
        "{found}"
    );
}

//! Links libcuda, as a program with CUDA calls of its own does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DOWNSTREAM_CUDA_FOLDER");
    let folder = std::env::var("DOWNSTREAM_CUDA_FOLDER")
        .expect("DOWNSTREAM_CUDA_FOLDER is the folder with libcuda.so");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=dylib=cuda");
}

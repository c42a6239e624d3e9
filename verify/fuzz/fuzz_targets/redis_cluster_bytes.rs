#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::redis_cluster_bytes(data));

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::postgres_urls(data));

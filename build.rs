//! Build script of the binding crate: Node-API's link settings.

fn main() {
    napi_build::setup();
}

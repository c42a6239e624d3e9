//! The server side of the API, from build.rs.

include!(concat!(
    env!("OUT_DIR"),
    "/google.firestore.v1.Firestore.rs"
));

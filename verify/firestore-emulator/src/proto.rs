//! The messages of the API.

pub(crate) use googleapis_tonic_google_firestore_v1::google::firestore::v1::*;

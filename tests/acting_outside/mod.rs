//! What runs propose to do outside.

mod outputs;

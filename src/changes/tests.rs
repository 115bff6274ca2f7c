//! What can't be seen from outside.

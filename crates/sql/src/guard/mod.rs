//! Guards: one statement that tells done, duplicate, conflict, illegal and missing apart.

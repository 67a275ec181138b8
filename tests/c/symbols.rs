//! What the libraries export: the functions of the header, and nothing else.

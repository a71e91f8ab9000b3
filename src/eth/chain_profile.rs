//! Whose filters and receipts commit to what.

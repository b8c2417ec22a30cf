"""The store conformance kit: every sentence of the Store contract as a law that runs on any store."""

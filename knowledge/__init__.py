"""What the lab knows: records, the ledger of this study, lessons of all studies, the technique catalog."""

"""HTML files that need no network: the run's report, and single pages of a trajectory or a group. html_document and
script_bundle are the pieces that every command's page is made of; run_report and standalone_page stand above them."""

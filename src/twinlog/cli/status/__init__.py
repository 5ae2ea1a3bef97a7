"""`twinlog status`: asks every service, joins the answers, prints them."""

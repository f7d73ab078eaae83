"""The experiments of Oiwa, Matsushima and Nakagawa: STDA (2012, §V) and SGFT (2011, §5), by one protocol."""

"""The page's style sheet: light and dark by the reader's own setting, no external resource."""

STYLE = """
:root{color-scheme:light dark;--page:#fbfaf8;--card:#ffffff;--ink:#1d1c1a;--soft:#6a6862;
--line:#e3e0d9;--grid:#ece9e3;--code:#f3f1ec;--mark:#f6d9a8;--red:#c23b2e;--amber:#9a6400;--green:#1f7a4d;
--series-0:#2a6fdb;--series-1:#d9622b;--series-2:#1a9c78;--series-3:#8a5bd6;--series-4:#c4912a;
--series-5:#6b7280;--sound:#3f8f6b;--trivial:#e3c46a;--empty:#e0954a;--undetermined:#9a7bd0;
--fails:#cf4b3f}
@media (prefers-color-scheme:dark){:root{--page:#161614;--card:#1f1f1c;--ink:#eceae4;
--soft:#a3a099;--line:#35342f;--grid:#2a2926;--code:#282723;--mark:#6b4a12;--red:#f0796c;--amber:#e0ad4e;
--green:#63c295;--series-0:#6aa5f5;--series-1:#f08a56;--series-2:#4cc7a1;--series-3:#b493f0;
--series-4:#dfb254;--series-5:#9aa1ab;--sound:#4fa37e;--trivial:#d8ba5f;--empty:#d98b43;
--undetermined:#a68adb;--fails:#e0675b}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1040px;margin:0 auto;padding:36px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:18px;margin:44px 0 4px}
h3{font-size:15px;margin:26px 0 6px}
p{margin:4px 0 12px;max-width:74ch}
.soft{color:var(--soft)}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;
margin:12px 0;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;color:var(--soft);font-size:13px}
th,td{padding:6px 10px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child>td{border-bottom:0}
th.n,td.n{text-align:right;white-space:nowrap}
svg{display:block;width:100%;height:auto;min-width:640px}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .grid{stroke:var(--grid)}svg .base{stroke:var(--soft)}
svg line.published{stroke:var(--soft);stroke-dasharray:3 4}
svg text.published{fill:var(--ink);font-size:11.5px}
svg .hover{fill:transparent}svg .hover:hover{fill:var(--ink);fill-opacity:.06}
.legend{display:flex;flex-wrap:wrap;gap:6px 20px;margin:0 0 8px;font-size:13px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px}
.bar{display:flex;gap:2px;height:18px;min-width:220px}
.part{border-radius:3px;min-width:3px}
.sound{background:var(--sound)}.trivial{background:var(--trivial)}.empty{background:var(--empty)}
.undetermined{background:var(--undetermined)}.fails{background:var(--fails)}
.error{color:var(--red)}.warning{color:var(--amber)}.note{color:var(--soft)}.fine{color:var(--green)}
.tag{font-weight:600;white-space:nowrap}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:12px}
.tile{flex:1 1 150px;background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:12px 16px}
.tile b{display:block;font-size:24px;line-height:1.25;font-weight:650}
.tile span{font-size:13px;color:var(--soft)}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--code);border-radius:6px;padding:8px 12px;margin:6px 0;white-space:pre-wrap;
overflow-wrap:anywhere}
mark{background:var(--mark);color:inherit;border-radius:3px;padding:0 2px}
details summary{cursor:pointer;color:var(--soft);font-size:13px}
td.id{overflow-wrap:anywhere}
footer{margin-top:48px;font-size:13px;color:var(--soft)}
"""
